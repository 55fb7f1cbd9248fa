"""Cases for dgemm: sizes around the register tiles and blocks of every ISA, odd sizes first."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from tests.phone_agent.core.memory import GAP, Case, Memory, Wanted, struct, with_gaps

Array = NDArray[Any]
SUMS = 1e-14  # for sums of thousands of products

SMALL = [
    (1, 1, 1), (1, 33, 3), (5, 1, 2), (6, 32, 4), (7, 9, 0), (13, 31, 17), (4, 8, 161), (37, 65, 20), (25, 130, 5),
]  # fmt: skip
LARGE = [(193, 34, 160), (12, 2050, 3), (97, 2081, 9), (200, 513, 40), (73, 70, 515), (400, 100, 257), (31, 32, 1100)]
FACTORS = [(1.0, False), (-1.0, True), (2.5, True), (-0.5, False)]


def products(*, full: bool) -> Iterator[Case]:
    variants = cycle((*FACTORS, FACTORS[1]))
    for (rows, columns, depth), extra in zip([*SMALL, *(LARGE if full else [])], cycle((0, 1, 5)), strict=False):
        yield _product(rows, columns, depth, extra, *next(variants))


def _product(rows: int, columns: int, depth: int, extra: int, alpha: float, accumulate: bool) -> Case:  # noqa: FBT001
    name = f"{rows}x{columns}x{depth} +{extra} alpha {alpha}" + (" added" if accumulate else "")
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    a, b = draw.standard_normal((depth, rows)), draw.standard_normal((depth, columns))
    before = draw.standard_normal((rows, columns))
    want = alpha * a.T @ b + (before if accumulate else 0)
    empty = before if accumulate else np.full_like(before, np.nan)
    c = Memory("c", with_gaps(empty, columns + extra, float(GAP), np.float64))
    op = struct(
        ops.Dgemm, a=_read("a", a, rows + extra), b=_read("b", b, columns + extra), c=c, alpha=alpha, rows=rows,
        columns=columns, depth=depth, lda=rows + extra, ldb=columns + extra, ldc=columns + extra,
        accumulate=int(accumulate),
    )  # fmt: skip
    wanted = Wanted(c, with_gaps(want, columns + extra, float(GAP), np.float64), SUMS)
    return Case(name, Kind.DGEMM, op, (wanted,))


def _read(name: str, values: Array, ld: int) -> Memory:
    """The gaps between rows are NaN, which would poison any result that reads them."""
    return Memory(name, with_gaps(values, ld, np.nan, np.float64) if values.size else np.zeros(0))
