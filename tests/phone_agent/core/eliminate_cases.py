"""Cases for elimination: panel heights around vector lengths and chunk sizes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from tests.phone_agent.core.memory import GAP, Case, Memory, Wanted, block, struct, with_gaps

ELEMENTWISE = 1e-15
SMALL = [(1, 0), (1, 1), (7, 3), (8, 1), (33, 7), (1024, 2), (1025, 1), (2100, 4)]
LARGE = [(1023, 7), (5000, 3), (10_240, 7)]


def columns(*, full: bool) -> Iterator[Case]:
    for (rows, beside), extra in zip([*SMALL, *(LARGE if full else [])], cycle((0, 3)), strict=False):
        yield _column(rows, beside, extra)


def _column(rows: int, beside: int, extra: int) -> Case:
    name = f"{rows} rows, {beside} beside +{extra}"
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    before = (
        draw.integers(-64, 65, (beside + 1, rows)) / 8
    )  # few bits, so that every order of operations gives the same result
    pivot, factors = -4.0, draw.integers(-8, 9, beside) / 4
    want = before.copy()
    want[0] /= pivot
    want[1:] -= factors[:, None] * want[0]
    panel = Memory("column", _apart(before, rows + extra))
    largest = Memory("next_pivot", np.full(1, -1, np.int64))
    op = struct(
        ops.Eliminate, column=panel, factors=block("factors", factors, np.float64), next_pivot=largest,
        pivot=pivot, rows=rows, ld=rows + extra, trailing_columns=beside,
    )  # fmt: skip
    found = int(np.abs(want[1]).argmax()) if beside else -1
    wanted = Wanted(panel, _apart(want, rows + extra), ELEMENTWISE), Wanted(largest, np.array([found]), 0.0)
    return Case(name, Kind.ELIMINATE, op, wanted)


def _apart(values: NDArray[np.float64], ld: int) -> NDArray[np.float64]:
    return with_gaps(values, ld, float(GAP), np.float64)
