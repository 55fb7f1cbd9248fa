"""Cases for local response normalization."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from tests.phone_agent.core import oracle, shapes
from tests.phone_agent.core.memory import Case, read_rows, struct, written_rows
from tests.phone_agent.core.operands import (
    FLOATS,
    HALVES,
    POWERS,
    SINKS,
    SOURCES,
    Cases,
    FusedGradientCase,
    FusedInputCase,
    dtype_label,
    random_data_for,
)

LRN = [(5, 1e-4, 0.75, 1.0), (5, 0.5, 0.75, 2.0), (3, 1.0, 0.5, 1.0), (4, 0.3, 1.0, 1.0), (1, 0.1, 0.6, 1.5)]


def _lrn_forwards(*, full: bool) -> Iterator[Case]:
    rules, sources, extras = cycle(LRN), cycle(SOURCES), cycle([0, 3])
    for (rows, channels), dtypes in product(shapes.matrices(full=full), (FLOATS, HALVES[0])):
        (size, alpha, beta, k), act, extra = next(rules), next(sources), next(extras)
        name = (
            f"{rows}x{channels} size={size} alpha={alpha} beta={beta} k={k} source={act} +{extra}{dtype_label(dtypes)}"
        )
        x = FusedInputCase(random_data_for(name, dtypes), "x", (rows, channels), extra, act, dtypes[0])
        y = oracle.lrn_forward(x.values, size, alpha, beta, k)
        into = written_rows("y", None, y, channels + extra, POWERS, dtypes[1])
        op = struct(
            ops.LrnForward, x=x.memory, y=into.memory, rows=rows, channels=channels, ld_y=channels + extra, size=size,
            alpha=alpha, beta=beta, k=k, dtype=dtypes[1],
        )  # fmt: skip
        yield Case(name, Kind.LRN_FORWARD, op, (into,))


def _lrn_backwards(*, full: bool) -> Iterator[Case]:
    rules, sources, sinks, extras = cycle(LRN), cycle(SOURCES), cycle(SINKS), cycle([0, 3])
    for (rows, channels), dtypes in product(shapes.matrices(full=full), (FLOATS, HALVES[0])):
        (size, alpha, beta, k), act, sink, extra = next(rules), next(sources), next(sinks), next(extras)
        name = f"{rows}x{channels} size={size} alpha={alpha} beta={beta} k={k} source={act} sink={sink} +{extra}"
        name += dtype_label(dtypes)
        draw = random_data_for(name, dtypes)
        x = FusedInputCase(draw, "x", (rows, channels), extra, act, dtypes[0])
        dy = draw.normal(rows, channels)
        sunk = FusedGradientCase(
            draw, oracle.lrn_backward(x.values, dy, size, alpha, beta, k), sink, extra, POWERS, dtypes[0]
        )
        op = struct(
            ops.LrnBackward, x=x.memory, dy=read_rows("dy", dy, channels + extra), dx=sunk.memory, rows=rows,
            channels=channels, ld_dy=channels + extra, size=size, alpha=alpha, beta=beta, k=k,
        )  # fmt: skip
        yield Case(name, Kind.LRN_BACKWARD, op, tuple(sunk.wanted))


KINDS: dict[Kind, Cases] = {
    Kind.LRN_FORWARD: _lrn_forwards,
    Kind.LRN_BACKWARD: _lrn_backwards,
}
