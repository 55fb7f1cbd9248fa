"""Cases for max and average pooling."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np

from phone_agent.core import ops
from phone_agent.core.ops import Act, Geometry, Kind, Pooling
from tests.phone_agent.core import oracle, shapes
from tests.phone_agent.core.memory import Case, Memory, Wanted, block, read_rows, struct, written_rows
from tests.phone_agent.core.operands import (
    ELEMENTWISE,
    EXACT,
    FLOATS,
    HALVES,
    SINKS,
    SOURCES,
    Cases,
    DTypes,
    FusedGradientCase,
    FusedInputCase,
    dtype_label,
    image,
    part_of,
    random_data_for,
    result,
)

VARIETIES_OF_POOLS = [(Pooling.MAX, False), (Pooling.AVERAGE, False), (Pooling.AVERAGE, True)]


def pool_forward(
    g: Geometry,
    pooling: Pooling,
    *,
    count_padding: bool,
    act: Act | None,
    extra: int,
    keep_winner: bool = True,
    dtypes: DTypes = FLOATS,
) -> Case:
    name = f"{shapes.name(g)} {pooling.name.lower()} padding={count_padding} input={act} +{extra}{dtype_label(dtypes)}"
    draw = random_data_for(name, dtypes)
    x = FusedInputCase(draw, "x", image(g), extra, act, dtypes[0], exact=True)
    ld = g.out_c + extra
    fields: dict[str, Any] = {}
    wanted = []
    if pooling == Pooling.MAX:
        y, argmax = oracle.max_pool_forward(g, x.values)
        if keep_winner:
            wanted.append(Wanted(Memory("argmax", np.full(argmax.size, 255, np.uint8)), argmax.reshape(-1), EXACT))
            fields["argmax"] = wanted[0].memory
    else:
        y = oracle.average_pool_forward(g, x.values, count_padding=count_padding)
    into = written_rows("y", None, y, ld, EXACT if pooling == Pooling.MAX else ELEMENTWISE, dtypes[1])
    op = struct(
        ops.PoolingForward, g=part_of(g), x=x.memory, y=into.memory, ld_y=ld, pooling=pooling,
        count_padding=int(count_padding), dtype=dtypes[1], **fields,
    )  # fmt: skip
    return Case(name, Kind.POOLING_FORWARD, op, (into, *wanted))


def pool_backward(
    g: Geometry,
    pooling: Pooling,
    *,
    count_padding: bool,
    sink: tuple[bool, str, Act],
    extra: int,
    dtypes: DTypes = FLOATS,
) -> Case:
    name = f"{shapes.name(g)} {pooling.name.lower()} padding={count_padding} grad={sink} +{extra}{dtype_label(dtypes)}"
    draw = random_data_for(name, dtypes)
    dy = draw.normal(*result(g))
    fields: dict[str, Any] = {}
    if pooling == Pooling.MAX:
        _, argmax = oracle.max_pool_forward(g, draw.normal(*image(g)))
        fields["argmax"] = block("argmax", argmax, np.uint8)
        dx = oracle.max_pool_backward(g, dy, argmax)
    else:
        dx = oracle.average_pool_backward(g, dy, count_padding=count_padding)
    sunk = FusedGradientCase(draw, dx, sink, extra, ELEMENTWISE, dtypes[0])
    op = struct(
        ops.PoolingBackward, g=part_of(g), dy=read_rows("dy", dy, g.out_c + extra), dx=sunk.memory,
        ld_dy=g.out_c + extra, pooling=pooling, count_padding=int(count_padding), **fields,
    )  # fmt: skip
    return Case(name, Kind.POOLING_BACKWARD, op, tuple(sunk.wanted))


def _pool_forwards(*, full: bool) -> Iterator[Case]:
    acts, extras, halves = cycle(SOURCES), cycle([0, 3, 16]), cycle(HALVES)
    for g in shapes.pools(full=full):
        for pooling, count_padding in VARIETIES_OF_POOLS:
            if pooling == Pooling.AVERAGE or (2 * g.pad_h <= g.kernel_h and 2 * g.pad_w <= g.kernel_w):
                yield pool_forward(g, pooling, count_padding=count_padding, act=next(acts), extra=next(extras))
                act, extra, dtypes = next(acts), next(extras), next(halves)
                yield pool_forward(g, pooling, count_padding=count_padding, act=act, extra=extra, dtypes=dtypes)
        if 2 * g.pad_h <= g.kernel_h:  # evaluation needs no argmax
            yield pool_forward(g, Pooling.MAX, count_padding=False, act=None, extra=1, keep_winner=False)


def _pool_backwards(*, full: bool) -> Iterator[Case]:
    sinks, extras, stored = cycle(SINKS), cycle([0, 3, 16]), cycle([FLOATS, FLOATS, FLOATS, HALVES[0]])
    for g in shapes.pools(full=full):
        for pooling, count_padding in VARIETIES_OF_POOLS:
            sink, extra, dtypes = next(sinks), next(extras), next(stored)
            yield pool_backward(g, pooling, count_padding=count_padding, sink=sink, extra=extra, dtypes=dtypes)


KINDS: dict[Kind, Cases] = {
    Kind.POOLING_FORWARD: _pool_forwards,
    Kind.POOLING_BACKWARD: _pool_backwards,
}
