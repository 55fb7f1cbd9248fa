"""Cases for residual sums, activations, and conversions to and from fp16."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np

from phone_agent.core import ops
from phone_agent.core.ops import Act, DType, Kind
from tests.phone_agent.core import oracle, shapes
from tests.phone_agent.core.memory import TYPES, Case, read_rows, struct, written_rows
from tests.phone_agent.core.operands import (
    ELEMENTWISE,
    EXACT,
    FLOATS,
    HALVES,
    SOURCES,
    Cases,
    DTypes,
    FusedInputCase,
    dtype_label,
    random_data_for,
)


def _join_forwards(*, full: bool) -> Iterator[Case]:
    acts, sources, extras = cycle([Act.NONE, Act.RELU, Act.RELU6]), cycle(SOURCES), cycle([0, 3, 7])
    stored = cycle([FLOATS, HALVES[0], FLOATS, FLOATS, HALVES[1], FLOATS, HALVES[2]])
    for rows, channels in shapes.matrices(full=full):
        for both in (True, False, True, False):
            act, left, right, extra = next(acts), next(sources), next(sources), next(extras)
            dtypes = next(stored)
            name = f"{rows}x{channels} a={left} b={right if both else 'null'} act={act} +{extra}{dtype_label(dtypes)}"
            draw = random_data_for(name, dtypes)
            a = FusedInputCase(draw, "a", (rows, channels), extra, left, dtypes[0])
            y = a.values
            fields = {"a": a.memory}
            if both:
                b = FusedInputCase(draw, "b", (rows, channels), 2 * extra, right, dtypes[1])
                y = y + b.values
                fields["b"] = b.memory
            into = written_rows("y", None, oracle.activate(y, act), channels + extra, ELEMENTWISE, dtypes[1])
            op = struct(
                ops.AddForward, y=into.memory, rows=rows, channels=channels, ld_y=channels + extra, act=act,
                dtype=dtypes[1], **fields,
            )  # fmt: skip
            yield Case(name, Kind.ADD_FORWARD, op, (into,))
    yield from (_stored_as(dtypes) for dtypes in HALVES[1:])


def _stored_as(dtypes: DTypes) -> Case:
    """Conversions to and from fp16, exact to the bit: ties, overflow, denormals and NaN."""
    halves = np.arange(0x10000, dtype=np.uint16).view(np.float16)
    values = halves.astype(np.float32)
    if dtypes[0] == DType.FP32:
        with np.errstate(invalid="ignore"):
            between = (values[:-1].astype(np.float64) + values[1:]) / 2
        beyond = np.array([65519.99, 65520, 1e30, -65520, 2.0**-25, -(2.0**-26), np.inf, -np.inf, np.nan])
        with np.errstate(invalid="ignore"):  # the values include signaling NaNs
            values = np.concatenate([values, between, beyond]).astype(np.float32)
    row = values.reshape(1, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        want = row.astype(TYPES[dtypes[1]]).astype(np.float64)
    ld = values.size
    into = written_rows("y", None, want, ld, EXACT, dtypes[1])
    a = struct(ops.FusedInput, data=read_rows("a", row, ld, dtypes[0]), ld=ld, dtype=dtypes[0])
    op = struct(ops.AddForward, a=a, y=into.memory, rows=1, channels=ld, ld_y=ld, dtype=dtypes[1])
    return Case(f"every half{dtype_label(dtypes)}", Kind.ADD_FORWARD, op, (into,))


def _join_backwards(*, full: bool) -> Iterator[Case]:
    acts, extras = cycle([Act.NONE, Act.RELU, Act.RELU6]), cycle([0, 3, 7, 16])
    stored = cycle([FLOATS, HALVES[0], FLOATS, HALVES[0], FLOATS, FLOATS, FLOATS])
    for rows, channels in shapes.matrices(full=full):
        for accumulate, in_place in ((False, False), (True, False), (False, True), (False, False), (True, False)):
            act, extra, dtypes = next(acts), next(extras), next(stored)
            name = (
                f"{rows}x{channels} act={act} accumulate={accumulate} +{extra} in_place={in_place}{dtype_label(dtypes)}"
            )
            draw = random_data_for(name, dtypes)
            before = draw.normal(rows, channels) if accumulate else None
            dy = original = draw.normal(rows, channels)
            fields: dict[str, Any] = {"dy": read_rows("dy", dy, channels + extra), "ld_dy": channels + extra}
            if act != Act.NONE:
                y = oracle.activate(4 * draw.normal(rows, channels), act)
                dy = oracle.passed(dy, y, act)
                fields |= {"y": read_rows("y", y, channels + 1, dtypes[0]), "ld_y": channels + 1}
            ld = channels + (extra if in_place else 2)
            after = dy if before is None else dy + before
            into = written_rows("target", original if in_place else before, after, ld, ELEMENTWISE)
            if in_place:
                fields["dy"] = into.memory
            op = struct(
                ops.AddBackward, target=into.memory, rows=rows, channels=channels, ld_target=ld, act=act,
                accumulate=int(accumulate), dtype=dtypes[0], **fields,
            )  # fmt: skip
            yield Case(name, Kind.ADD_BACKWARD, op, (into,))


KINDS: dict[Kind, Cases] = {
    Kind.ADD_FORWARD: _join_forwards,
    Kind.ADD_BACKWARD: _join_backwards,
}
