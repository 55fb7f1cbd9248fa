"""Cases for convolutions: direct, depthwise and Winograd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from phone_agent.core import ops
from phone_agent.core.ops import Act, Algorithm, Geometry, Kind
from tests.phone_agent.core import oracle, shapes
from tests.phone_agent.core.memory import Case, Memory, Wanted, block, read_rows, struct, written_rows
from tests.phone_agent.core.operands import (
    FLOATS,
    HALVES,
    SINKS,
    SOURCES,
    SUMS,
    WINOGRAD2,
    WINOGRAD4,
    Cases,
    DTypes,
    FusedGradientCase,
    FusedInputCase,
    Norm,
    dtype_label,
    image,
    part_of,
    random_data_for,
    result,
    weight,
)

FINISHES = ["plain", "bias", "norm", "relu", "bias relu6", "bias relu", "norm", "relu6"]


def conv_forward(
    kind: Kind, g: Geometry, algorithm: Algorithm, act: Act | None, finish: str, extra: int, dtypes: DTypes = FLOATS
) -> Case:
    name = f"{shapes.name(g)} {algorithm.name.lower()} source={act} {finish} +{extra}{dtype_label(dtypes)}"
    draw = random_data_for(name, dtypes)
    tolerance = _tolerance(algorithm)
    x = FusedInputCase(draw, "x", image(g), extra, act, dtypes[0])
    weights = draw.normal(*weight(g)) / np.sqrt(np.prod(weight(g)[:3]))
    weights = weights.astype(np.float32).astype(np.float64)
    y = oracle.conv_forward(g, x.values, weights)
    fields: dict[str, Any] = {"x": x.memory, "weights": block("weights", weights), "algorithm": algorithm}
    wanted: list[Wanted] = []
    scratch: tuple[Memory, ...] = ()
    if finish == "norm":
        norm = Norm(draw, g.out_c, known=False)
        if g.batch * g.out_h * g.out_w > 1:  # a single pixel has no variance
            wanted += norm.wants_statistics(y)
        else:
            scratch = tuple(norm.memory.reachable())[1:]
        scratch += (norm.sums,)
        fields["norm"] = norm.memory
    if "bias" in finish:
        bias = draw.normal(g.out_c)
        y = y + bias
        fields["bias"] = block("bias", bias)
    after = Act.RELU6 if "relu6" in finish else Act.RELU if "relu" in finish else Act.NONE
    into = written_rows("y", None, oracle.activate(y, after), g.out_c + extra, tolerance, dtypes[1])
    op = struct(
        ops.ConvForward, g=part_of(g), y=into.memory, ld_y=g.out_c + extra, act=after, dtype=dtypes[1], **fields
    )
    return Case(name, kind, op, (into, *wanted), scratch)


def conv_backward_data(
    kind: Kind,
    g: Geometry,
    algorithm: Algorithm,
    sink: tuple[bool, str, Act],
    extra: int,
    dtypes: DTypes = FLOATS,
) -> Case:
    name = f"{shapes.name(g)} {algorithm.name.lower()} sink={sink} +{extra}{dtype_label(dtypes)}"
    draw = random_data_for(name, dtypes)
    dy = draw.normal(*result(g))
    weights = draw.normal(*weight(g))
    sunk = FusedGradientCase(
        draw, oracle.conv_backward_data(g, dy, weights), sink, extra, _tolerance(algorithm), dtypes[0]
    )
    op = struct(
        ops.ConvBackwardData, g=part_of(g), dy=read_rows("dy", dy, g.out_c + extra), weights=block("weights", weights),
        dx=sunk.memory, ld_dy=g.out_c + extra, algorithm=algorithm,
    )  # fmt: skip
    return Case(name, kind, op, tuple(sunk.wanted))


def conv_backward_weights(
    kind: Kind,
    g: Geometry,
    algorithm: Algorithm,
    act: Act | None,
    variety: tuple[bool, bool],
    extra: int,
    dtypes: DTypes = FLOATS,
) -> Case:
    accumulate, bias = variety
    name = f"{shapes.name(g)} {algorithm.name.lower()} source={act} accumulate={accumulate} bias={bias} +{extra}"
    name += dtype_label(dtypes)
    draw = random_data_for(name, dtypes)
    x = FusedInputCase(draw, "x", image(g), extra, act, dtypes[0])
    dy = draw.normal(*result(g))
    dweights = oracle.conv_backward_weights(g, x.values, dy)
    dbias = dy.reshape(-1, g.out_c).sum(axis=0)
    targets = {"dweights": dweights} | ({"dbias": dbias} if bias else {})
    wanted = []
    for target, want in targets.items():
        before = draw.normal(want.size).reshape(want.shape) if accumulate else np.full(want.shape, np.nan)
        total = want + before if accumulate else want
        wanted.append(Wanted(block(target, before), total.reshape(-1), _tolerance(algorithm)))
    op = struct(
        ops.ConvBackwardWeights, g=part_of(g), x=x.memory, dy=read_rows("dy", dy, g.out_c + extra),
        ld_dy=g.out_c + extra, algorithm=algorithm, accumulate=int(accumulate),
        **{item.memory.name: item.memory for item in wanted},
    )  # fmt: skip
    return Case(name, kind, op, tuple(wanted))


def _tolerance(algorithm: Algorithm) -> float:
    return {Algorithm.DIRECT: SUMS, Algorithm.WINOGRAD2: WINOGRAD2, Algorithm.WINOGRAD4: WINOGRAD4}[algorithm]


def every(
    kind: Kind,
    geometries: list[Geometry],
    algorithm: Algorithm = Algorithm.DIRECT,
    *,
    stored: Sequence[DTypes] = (FLOATS,),
) -> Iterator[Case]:
    sources, finishes, extras, sinks = cycle(SOURCES), cycle(FINISHES), cycle([0, 3, 16]), cycle(SINKS)
    dtypes = cycle(stored)
    weights = cycle([(False, True), (True, False), (False, False), (True, True), (False, True)])
    for g in geometries:
        extra, dtype = next(extras), next(dtypes)
        match kind:
            case Kind.CONV_FORWARD | Kind.DEPTHWISE_FORWARD:
                yield conv_forward(kind, g, algorithm, next(sources), next(finishes), extra, dtype)
            case Kind.CONV_BACKWARD_DATA | Kind.DEPTHWISE_BACKWARD_DATA:
                yield conv_backward_data(kind, g, algorithm, next(sinks), extra, dtype)
            case _:
                yield conv_backward_weights(kind, g, algorithm, next(sources), next(weights), extra, dtype)


def _stored(kind: Kind) -> list[DTypes]:
    """Storage types: a forward step has an input and an output type, other steps an input type only."""
    return HALVES if kind in {Kind.CONV_FORWARD, Kind.DEPTHWISE_FORWARD} else HALVES[:1]


def _convolution(kind: Kind) -> Cases:
    def cases(*, full: bool) -> Iterator[Case]:
        yield from every(kind, shapes.convolutions(full=full) * (2 if full else 1))
        # Every input variant with every epilogue, on one shape with tails in all dimensions.
        odd = [shapes.geometry(2, (5, 7), 19, 21, 3, pad=1)] * 56
        yield from every(kind, odd if full else odd[:8])
        for algorithm in (Algorithm.WINOGRAD2, Algorithm.WINOGRAD4):
            yield from every(kind, shapes.winograd(full=full), algorithm)
            halves = shapes.winograd(full=full)[:: 1 if full else 3]
            yield from every(kind, halves, algorithm, stored=_stored(kind))
        halves = shapes.convolutions(full=full)[:: 1 if full else 3]
        yield from every(kind, halves + (odd if full else odd[:8]), stored=_stored(kind))

    return cases


def _depthwise(kind: Kind) -> Cases:
    def cases(*, full: bool) -> Iterator[Case]:
        yield from every(kind, shapes.depthwise(full=full))
        odd = [shapes.geometry(2, (5, 7), 19, 19, 3, pad=1, groups=19)] * 56
        yield from every(kind, odd if full else odd[:8])
        halves = shapes.depthwise(full=full)[:: 1 if full else 3]
        yield from every(kind, halves + (odd if full else odd[:8]), stored=_stored(kind))

    return cases


KINDS: dict[Kind, Cases] = {
    Kind.CONV_FORWARD: _convolution(Kind.CONV_FORWARD),
    Kind.CONV_BACKWARD_DATA: _convolution(Kind.CONV_BACKWARD_DATA),
    Kind.CONV_BACKWARD_WEIGHTS: _convolution(Kind.CONV_BACKWARD_WEIGHTS),
    Kind.DEPTHWISE_FORWARD: _depthwise(Kind.DEPTHWISE_FORWARD),
    Kind.DEPTHWISE_BACKWARD_DATA: _depthwise(Kind.DEPTHWISE_BACKWARD_DATA),
    Kind.DEPTHWISE_BACKWARD_WEIGHTS: _depthwise(Kind.DEPTHWISE_BACKWARD_WEIGHTS),
}
