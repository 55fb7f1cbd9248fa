"""Partial sums per channel, for batch normalization forward and backward. See kernels/batch_norm.cl.

The kernel that computes a tensor can write them on the way; otherwise a separate pass does.
"""

from __future__ import annotations

from dataclasses import dataclass

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder, Scratch, TypedPointer
from phone_agent.backends.opencl.launches.operands import Fields, float_field, int_field, pointer_field, tensor_field
from phone_agent.core.ops import Act
from phone_agent.nn.plan.ops import Pointer, SharedStruct

ITEMS_PER_UNIT = 1024  # work-items to keep a compute unit busy
MIN_ROWS = 32  # per partial sum: fewer rows would only mean more sums to merge


@dataclass(frozen=True)
class PartialSums:
    """[count][2][channels] floats, each over `each` rows; the last one over the remaining rows.

    Forward: the mean, and the sum of squared deviations from it. Backward: the sums of g and of g (z - mean).
    """

    scratch: Scratch
    count: int
    each: int


def make_partial_sums(builder: LaunchBuilder, rows: int, each: int, channels: int) -> PartialSums:
    count = -(-rows // each)
    return PartialSums(builder.scratch(count * 2 * channels), count, each)


def statistics(builder: LaunchBuilder, norm: SharedStruct, z: TypedPointer, rows: int, ld: int) -> list[Launch]:
    """Batch statistics of z, in a separate pass."""
    partials = _separate_pass(builder, norm, rows)
    channels = int_field(norm.fields, "channels")
    kernel = builder.kernel("batch_norm", "batch_norm_statistics", Z=z.type)
    arguments = (z, partials.scratch, rows, channels, ld, partials.each, partials.count)
    launch = builder.launch_per_channel(kernel, arguments, channels, partials.count)
    return [launch, merge_statistics(builder, norm, partials, rows)]


def merge_statistics(builder: LaunchBuilder, norm: SharedStruct, partials: PartialSums, rows: int) -> Launch:
    """Last launch of a forward op with a norm: mean, inv_std, scale, shift and running statistics."""
    names = ("gamma", "beta", "running_mean", "running_var", "mean", "inv_std", "scale", "shift")
    fields = norm.fields
    channels = int_field(fields, "channels")
    pointers = [pointer_field(fields, name) for name in names]
    constants = (float_field(fields, "epsilon"), float_field(fields, "momentum"), channels)
    kernel = builder.kernel("batch_norm", "batch_norm_merge_statistics", Z="float")
    return builder.launch_1d(
        kernel, (partials.scratch, partials.count, partials.each, rows, *pointers, *constants), channels
    )


def fused_gradient_sums(builder: LaunchBuilder, fused: Fields, rows: int) -> list[Launch]:
    """The sums that the norm of a fused gradient needs, in a separate pass; nothing if there is no norm."""
    norm = fused.get("norm")
    if not isinstance(norm, SharedStruct):
        return []
    gradient = Gradient(
        pointer_field(fused, "data"), int_field(fused, "ld"), tensor_field(fused, "y"), int_field(fused, "ld_y")
    )
    return gradient_sums(builder, norm, gradient, rows)


@dataclass(frozen=True)
class Gradient:
    """Gradient g, and the input z of its batch normalization. `act`: activation yet to be differentiated."""

    g: Pointer | None
    ld_g: int
    z: TypedPointer
    ld_z: int
    act: int = Act.NONE


def gradient_sums(builder: LaunchBuilder, norm: SharedStruct, of: Gradient, rows: int) -> list[Launch]:
    partials = _separate_pass(builder, norm, rows)
    channels = int_field(norm.fields, "channels")
    kernel = builder.kernel("batch_norm", "batch_norm_gradient_sums", Z=of.z.type)
    known = [pointer_field(norm.fields, name) for name in ("mean", "scale", "shift")]
    numbers = (rows, channels, of.ld_g, of.ld_z, of.act, partials.each, partials.count)
    arguments = (of.g, of.z, *known, partials.scratch, *numbers)
    launch = builder.launch_per_channel(kernel, arguments, channels, partials.count)
    return [launch, merge_gradients(builder, norm, partials)]


def merge_gradients(builder: LaunchBuilder, norm: SharedStruct, partials: PartialSums) -> Launch:
    """Last launch of an op whose fused gradient has a norm: the sums for the backward of the norm."""
    channels = int_field(norm.fields, "channels")
    kernel = builder.kernel("batch_norm", "batch_norm_merge_sums", Z="float")
    return builder.launch_1d(
        kernel, (partials.scratch, partials.count, pointer_field(norm.fields, "sums"), channels), 2 * channels
    )


def _separate_pass(builder: LaunchBuilder, norm: SharedStruct, rows: int) -> PartialSums:
    channels = int_field(norm.fields, "channels")
    wanted = -(-ITEMS_PER_UNIT * builder.limits.compute_units // channels)
    return make_partial_sums(builder, rows, max(MIN_ROWS, -(-rows // wanted)), channels)
