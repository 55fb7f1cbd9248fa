"""Batch normalization that is not fused: statistics, folding for evaluation, backward."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder, Scratch
from phone_agent.backends.opencl.launches.operands import (
    Fields,
    float_field,
    int_field,
    norm_field,
    pointer_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import Gradient, gradient_sums, statistics
from phone_agent.core.ops import Act
from phone_agent.nn.plan.ops import OpSpec


def norm_forward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of = op.fields
    return statistics(builder, norm_field(of), tensor_field(of, "z"), int_field(of, "rows"), int_field(of, "ld_z"))


def norm_fold(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    norm = norm_field(op.fields).fields
    names = ("gamma", "beta", "running_mean", "running_var", "mean", "inv_std", "scale", "shift")
    channels = int_field(norm, "channels")
    kernel = builder.kernel("batch_norm", "batch_norm_fold", Z="float")
    pointers = [pointer_field(norm, name) for name in names]
    return [builder.launch_1d(kernel, (*pointers, float_field(norm, "epsilon"), channels), channels)]


def norm_backward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    """The sums, unless another op computed them; the coefficients; the pass that applies them."""
    of, norm = op.fields, norm_field(op.fields)
    reduced, rows = int_field(of, "reduced"), int_field(of, "rows")
    act = Act.NONE if reduced else int_field(of, "act")
    gradient = Gradient(
        pointer_field(of, "dy"), int_field(of, "ld_dy"), tensor_field(of, "z"), int_field(of, "ld_z"), act
    )
    sums = [] if reduced else gradient_sums(builder, norm, gradient, rows)
    k = builder.scratch(3 * int_field(norm.fields, "channels"))
    return [*sums, _coefficients(builder, norm.fields, k, rows), _apply(builder, of, gradient, k)]


def _coefficients(builder: LaunchBuilder, norm: Fields, k: Scratch, rows: int) -> Launch:
    channels = int_field(norm, "channels")
    pointers = [pointer_field(norm, name) for name in ("sums", "gamma", "inv_std", "dgamma", "dbeta")]
    kernel = builder.kernel("batch_norm", "batch_norm_coefficients", Z="float")
    return builder.launch_1d(kernel, (*pointers, k, rows, channels, builder.accumulate), channels)


def _apply(builder: LaunchBuilder, of: Fields, gradient: Gradient, k: Scratch) -> Launch:
    norm = norm_field(of).fields
    channels, rows = int_field(norm, "channels"), int_field(of, "rows")
    known = [pointer_field(norm, name) for name in ("mean", "scale", "shift")]
    numbers = (rows, channels, gradient.ld_z, gradient.ld_g, int_field(of, "ld_dz"), gradient.act)
    kernel = builder.kernel("batch_norm", "batch_norm_backward", Z=gradient.z.type)
    arguments = (k, gradient.z, gradient.g, pointer_field(of, "dz"), *known, *numbers)
    return builder.launch_per_channel(kernel, arguments, channels, rows)
