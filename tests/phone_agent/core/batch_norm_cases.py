"""Cases for batch normalization: statistics, folding and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np

from phone_agent.core import ops
from phone_agent.core.ops import Act, Kind
from tests.phone_agent.core import oracle, shapes
from tests.phone_agent.core.memory import Case, read_rows, struct, written_rows
from tests.phone_agent.core.operands import (
    ELEMENTWISE,
    EXACT,
    FLOATS,
    HALVES,
    SUMS,
    Cases,
    DTypes,
    Norm,
    dtype_label,
    random_data_for,
)
from tests.phone_agent.core.random_data import RandomData


def _norm_forwards(*, full: bool) -> Iterator[Case]:
    sizes = [(shape, dtypes) for shape in shapes.matrices(full=full) for dtypes in (FLOATS, HALVES[0])]
    for ((rows, channels), dtypes), extra in zip(sizes, cycle([0, 0, 5, 5]), strict=False):
        name = f"{rows}x{channels} +{extra}{dtype_label(dtypes)}"
        draw = random_data_for(name, dtypes)
        norm = Norm(draw, channels, known=False)
        z = draw.rounded(draw.normal(rows, channels) + 2 * draw.normal(channels))
        memory = read_rows("z", z, channels + extra, dtypes[0])
        op = struct(ops.BatchNormForward, norm=norm.memory, z=memory, rows=rows, ld_z=channels + extra, dtype=dtypes[0])
        yield Case(name, Kind.BATCH_NORM_FORWARD, op, tuple(norm.wants_statistics(z)), (norm.sums,))


def _norm_folds(*, full: bool) -> Iterator[Case]:
    for _, channels in shapes.matrices(full=full):
        norm = Norm(RandomData(f"fold {channels}"), channels, known=False)
        scale = norm.gamma / np.sqrt(norm.running_var + norm.EPSILON)
        wanted = norm.wants(ELEMENTWISE, scale=scale, shift=norm.beta - norm.running_mean * scale)
        op = struct(ops.BatchNormFold, norm=norm.memory)
        yield Case(
            str(channels), Kind.BATCH_NORM_FOLD, op, tuple(wanted), (norm.sums, norm.part("mean"), norm.part("inv_std"))
        )


RESIDUALS = ["", "residual_sum", "residual_sum keep", "reduced", "residual_sum reduced keep"]


def norm_backward(
    rows: int,
    channels: int,
    how: str,
    acts: tuple[Act, Act],
    extra: int,
    *,
    in_place: bool,
    dtypes: DTypes = FLOATS,
) -> Case:
    name = f"{rows}x{channels} {how or 'alone'} acts={acts} +{extra} in_place={in_place}{dtype_label(dtypes)}"
    draw = random_data_for(name, dtypes)
    act, residual_act = acts
    norm = Norm(draw, channels, known=True, accumulate=extra > 0)
    z = norm.off_the_edges(draw, (rows, channels), act)
    dy = draw.normal(rows, channels)
    fields: dict[str, Any] = {}
    g = dy
    if "residual_sum" in how:
        residual_sum = oracle.activate(4 * draw.normal(rows, channels), residual_act)
        g = oracle.passed(g, residual_sum, residual_act)
        memory = read_rows("residual_sum", residual_sum, channels + 1, dtypes[0])
        fields |= {"residual_sum": memory, "ld_residual_sum": channels + 1, "residual_act": residual_act}
    masked = oracle.passed(g, norm.scale * z + norm.shift, act)
    dz, dgamma, dbeta = oracle.norm_backward(masked, z, norm.gamma, norm.mean, norm.inv_std)
    if norm.accumulate:
        dgamma, dbeta = dgamma + norm.dgamma, dbeta + norm.dbeta
    before = dy
    if "reduced" in how:  # a fused gradient has masked dy and computed the sums
        before = masked
        norm.sums.data[:] = oracle.gradient_sums(masked, z, norm.mean).reshape(-1)
    writes_dy = "residual_sum" in how and "keep" not in how and "reduced" not in how
    ld = channels + extra
    dy_after = dz if in_place else g if writes_dy else before
    dy_wanted = written_rows("dy", before, dy_after, ld, SUMS if in_place else EXACT if not writes_dy else ELEMENTWISE)
    dz_wanted = dy_wanted if in_place else written_rows("dz", None, dz, ld, SUMS)
    op = struct(
        ops.BatchNormBackward, norm=norm.memory, z=read_rows("z", z, channels + 2, dtypes[0]), dy=dy_wanted.memory,
        dz=dz_wanted.memory, rows=rows, ld_z=channels + 2, ld_dy=ld, ld_dz=ld, act=act, reduced=int("reduced" in how),
        keep_dy=int("keep" in how), dtype=dtypes[0], **fields,
    )  # fmt: skip
    wanted = {id(item): item for item in (dy_wanted, dz_wanted, *norm.wants(SUMS, dgamma=dgamma, dbeta=dbeta))}
    return Case(name, Kind.BATCH_NORM_BACKWARD, op, tuple(wanted.values()), (norm.sums,))


def _norm_backwards(*, full: bool) -> Iterator[Case]:
    extras = cycle([0, 3])
    acts = cycle([(Act.RELU, Act.NONE), (Act.NONE, Act.RELU), (Act.RELU6, Act.NONE), (Act.NONE, Act.RELU6)])
    sizes = shapes.matrices(full=full)
    wanted = [(shape, FLOATS) for shape in sizes] + [(shape, HALVES[0]) for shape in sizes[:: 1 if full else 2]]
    for (rows, channels), dtypes in wanted:
        for how in RESIDUALS:
            pair = next(acts)
            if "residual_sum" in how:
                pair = (Act.NONE, pair[0] or pair[1])
            # In place, dy would be both dz and the gradient of the other branch.
            in_place = how in {"", "reduced"} and rows % 2 == 1
            yield norm_backward(rows, channels, how, pair, next(extras), in_place=in_place, dtypes=dtypes)


KINDS: dict[Kind, Cases] = {
    Kind.BATCH_NORM_FORWARD: _norm_forwards,
    Kind.BATCH_NORM_FOLD: _norm_folds,
    Kind.BATCH_NORM_BACKWARD: _norm_backwards,
}
