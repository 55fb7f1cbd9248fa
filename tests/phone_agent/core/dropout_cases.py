"""Cases for dropout: forward and backward drop the same elements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product

import numpy as np

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from tests.phone_agent.core import shapes
from tests.phone_agent.core.memory import Array, Case, block, read_rows, struct, written_rows
from tests.phone_agent.core.operands import (
    ELEMENTWISE,
    FLOATS,
    HALVES,
    SINKS,
    SOURCES,
    Cases,
    FusedGradientCase,
    FusedInputCase,
    dtype_label,
    random_data_for,
)


def _kept(draw: int, salt: int, rate: float, shape: tuple[int, int]) -> Array:
    from phone_agent.backends.reference_layers import keep_mask

    return keep_mask(shape[0] * shape[1], rate, draw, salt).reshape(shape)


def _dropout_forwards(*, full: bool) -> Iterator[Case]:
    rates, sources, extras = cycle([0.5, 0.1, 0.9, 0.0]), cycle(SOURCES), cycle([0, 3])
    for (rows, channels), dtypes in product(shapes.matrices(full=full), (FLOATS, HALVES[0])):
        rate, act, extra = next(rates), next(sources), next(extras)
        name = f"{rows}x{channels} rate={rate} source={act} +{extra}{dtype_label(dtypes)}"
        x = FusedInputCase(random_data_for(name, dtypes), "x", (rows, channels), extra, act, dtypes[0])
        drawn, salt = 2**40 + 7 * rows, 1000 + channels
        y = np.where(_kept(drawn, salt, rate, (rows, channels)), x.values / (1 - rate), 0)
        into = written_rows("y", None, y, channels + extra, ELEMENTWISE, dtypes[1])
        op = struct(
            ops.DropoutForward, x=x.memory, y=into.memory, seed=block("seed", np.array([drawn]), np.uint64), rows=rows,
            channels=channels, ld_y=channels + extra, rate=rate, salt=salt, dtype=dtypes[1],
        )  # fmt: skip
        yield Case(name, Kind.DROPOUT_FORWARD, op, (into,))


def _dropout_backwards(*, full: bool) -> Iterator[Case]:
    rates, sinks, extras = cycle([0.5, 0.1, 0.9, 0.0]), cycle(SINKS), cycle([0, 3])
    for (rows, channels), dtypes in product(shapes.matrices(full=full), (FLOATS, HALVES[0])):
        rate, sink, extra = next(rates), next(sinks), next(extras)
        name = f"{rows}x{channels} rate={rate} sink={sink} +{extra}{dtype_label(dtypes)}"
        draw = random_data_for(name, dtypes)
        dy = draw.normal(rows, channels)
        drawn, salt = 2**40 + 7 * rows, 1000 + channels
        dx = np.where(_kept(drawn, salt, rate, (rows, channels)), dy / (1 - rate), 0)
        sunk = FusedGradientCase(draw, dx, sink, extra, ELEMENTWISE, dtypes[0])
        op = struct(
            ops.DropoutBackward, dy=read_rows("dy", dy, channels + extra), dx=sunk.memory,
            seed=block("seed", np.array([drawn]), np.uint64), rows=rows, channels=channels, ld_dy=channels + extra,
            rate=rate, salt=salt,
        )  # fmt: skip
        yield Case(name, Kind.DROPOUT_BACKWARD, op, tuple(sunk.wanted))


KINDS: dict[Kind, Cases] = {
    Kind.DROPOUT_FORWARD: _dropout_forwards,
    Kind.DROPOUT_BACKWARD: _dropout_backwards,
}
