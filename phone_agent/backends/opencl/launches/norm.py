"""Batch normalisation where no other step does it: statistics, folding for evaluation, the gradient."""

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


def norm_forward(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    of = step.fields
    return statistics(make, norm_field(of), tensor_field(of, "z"), int_field(of, "rows"), int_field(of, "ld_z"))


def norm_fold(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    norm = norm_field(step.fields).fields
    names = ("gamma", "beta", "running_mean", "running_var", "mean", "inv_std", "scale", "shift")
    channels = int_field(norm, "channels")
    kernel = make.kernel("batch_norm", "batch_norm_fold", Z="float")
    places = [pointer_field(norm, name) for name in names]
    return [make.over(kernel, (*places, float_field(norm, "epsilon"), channels), channels)]


def norm_backward(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    """The sums, where no sink has gathered them; what follows from them; the pass that applies it."""
    of, norm = step.fields, norm_field(step.fields)
    reduced, rows = int_field(of, "reduced"), int_field(of, "rows")
    act = Act.NONE if reduced else int_field(of, "act")
    gradient = Gradient(
        pointer_field(of, "dy"), int_field(of, "ld_dy"), tensor_field(of, "z"), int_field(of, "ld_z"), act
    )
    sums = [] if reduced else gradient_sums(make, norm, gradient, rows)
    k = make.scratch(3 * int_field(norm.fields, "channels"))
    return [*sums, _coefficients(make, norm.fields, k, rows), _spread(make, of, gradient, k)]


def _coefficients(make: LaunchBuilder, norm: Fields, k: Scratch, rows: int) -> Launch:
    channels = int_field(norm, "channels")
    places = [pointer_field(norm, name) for name in ("sums", "gamma", "inv_std", "dgamma", "dbeta")]
    kernel = make.kernel("batch_norm", "batch_norm_coefficients", Z="float")
    return make.over(kernel, (*places, k, rows, channels, make.adding), channels)


def _spread(make: LaunchBuilder, of: Fields, gradient: Gradient, k: Scratch) -> Launch:
    norm = norm_field(of).fields
    channels, rows = int_field(norm, "channels"), int_field(of, "rows")
    known = [pointer_field(norm, name) for name in ("mean", "scale", "shift")]
    numbers = (rows, channels, gradient.ld_z, gradient.ld_g, int_field(of, "ld_dz"), gradient.act)
    kernel = make.kernel("batch_norm", "batch_norm_backward", Z=gradient.z.type)
    arguments = (k, gradient.z, gradient.g, pointer_field(of, "dz"), *known, *numbers)
    return make.by_channel(kernel, arguments, channels, rows)
