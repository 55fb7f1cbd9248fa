"""Cases for low-rank compression: shapes of layers, odd ones first."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import cycle
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from tests.phone_agent.core.memory import Case, Wanted, block, struct

Array = NDArray[Any]
SUMS = 1e-5
ELEMENTWISE = 2e-6

SMALL = [(1, 1), (2, 3), (5, 17), (33, 16), (16, 33), (64, 7), (27, 64), (31, 65), (130, 100), (40, 600)]
LARGE = [(576, 64), (1152, 129), (2048, 1000), (25, 4097)]
RANKS = (1, 2, 4, 8, 16)


class Cases(Protocol):
    def __call__(self, *, full: bool) -> Iterator[Case]: ...


class Factors:
    """Random factors that depend only on the name: float32 values in double precision."""

    def __init__(self, name: str, rows: int, columns: int, rank: int) -> None:
        draw = np.random.default_rng(zlib.crc32(name.encode()))

        def normal(*shape: int) -> Array:
            return draw.standard_normal(shape).astype(np.float32).astype(np.float64)

        self.sizes = {"rows": rows, "columns": columns, "rank": rank}
        self.matrix, self.residual = normal(rows, columns), normal(rows, columns)
        self.left, self.right, self.own = normal(rows, rank), normal(rank, columns), normal(rank, columns)


def _before(name: str, values: Array, want: Array, tolerance: float) -> Wanted:
    return Wanted(block(name, values), want.reshape(-1), tolerance)


def _sketch(f: Factors) -> tuple[dict[str, Any], list[Wanted]]:
    matrix = f.matrix + f.residual
    fields = {"residual": block("residual", f.residual), "right": block("right", f.right)}
    return fields, [
        _before("matrix", f.matrix, matrix, ELEMENTWISE),
        _before("left", np.full_like(f.left, np.nan), matrix @ f.right.T, SUMS),
    ]


def _orthonormalize(f: Factors) -> tuple[dict[str, Any], list[Wanted]]:
    """By numpy's QR, whose columns may differ in sign. If the rank allows, the last column depends on the first."""
    if f.sizes["rank"] > 2:
        f.left[:, -1] = f.left[:, 0] * 2
    independent = min(f.left.shape[0], f.left.shape[1] - (f.sizes["rank"] > 2))
    q, r = np.linalg.qr(f.left[:, :independent])
    want = np.zeros_like(f.left)
    want[:, :independent] = q * np.sign(np.diag(r))
    return {}, [_before("left", f.left, want, 20 * SUMS)]


def _project(f: Factors) -> tuple[dict[str, Any], list[Wanted]]:
    fields = {"matrix": block("matrix", f.matrix), "left": block("left", f.left)}
    return fields, [_before("right", np.full_like(f.right, np.nan), f.left.T @ f.matrix, SUMS)]


def _reconstruct(f: Factors) -> tuple[dict[str, Any], list[Wanted]]:
    fields = {
        "left": block("left", f.left),
        "right": block("right", f.right),
        "local_right": block("local_right", f.own),
    }
    return fields, [
        _before("residual", np.full_like(f.residual, np.nan), f.matrix - f.left @ f.own, SUMS),
        _before("matrix", f.matrix, f.left @ f.right, SUMS),
    ]


_MAKERS = {
    Kind.LOWRANK_SKETCH: _sketch,
    Kind.LOWRANK_ORTHONORMALIZE: _orthonormalize,
    Kind.LOWRANK_PROJECT: _project,
    Kind.LOWRANK_RECONSTRUCT: _reconstruct,
}


def of(kind: Kind) -> Cases:
    def cases(*, full: bool) -> Iterator[Case]:
        for (rows, columns), rank in zip([*SMALL, *(LARGE if full else [])] * 2, cycle((*RANKS, 4)), strict=False):
            name = f"{rows}x{columns} rank {rank}"
            factors = Factors(name, rows, columns, rank)
            fields, wanted = _MAKERS[kind](factors)
            fields |= {item.memory.name: item.memory for item in wanted}
            yield Case(name, kind, struct(ops.LowRank, **fields, **factors.sizes), tuple(wanted))

    return cases


KINDS: dict[Kind, Cases] = {kind: of(kind) for kind in _MAKERS}
