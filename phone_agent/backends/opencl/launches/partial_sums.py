"""Sums by channel, in parts: what a normalisation gathers, forward and backward. See kernels/batch_norm.cl.

Whoever computes a tensor may make the parts as it goes; else a pass over it does.
"""

from __future__ import annotations

from dataclasses import dataclass

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder, Scratch, TypedPointer
from phone_agent.backends.opencl.launches.operands import Fields, float_field, int_field, pointer_field, tensor_field
from phone_agent.core.ops import Act
from phone_agent.nn.plan.ops import Pointer, SharedStruct

ITEMS_A_UNIT = 1024  # work-items that keep a compute unit busy
LEAST_ROWS = 32  # of a part: fewer would only make more to add up


@dataclass(frozen=True)
class PartialSums:
    """[count][2][channels] floats, each part over `each` rows; the last one over those that are left.

    Forward: the mean of the part, and the sum of squares about it. Backward: the sums of g and of g (z - mean).
    """

    scratch: Scratch
    count: int
    each: int


def make_partial_sums(make: LaunchBuilder, rows: int, each: int, channels: int) -> PartialSums:
    count = -(-rows // each)
    return PartialSums(make.scratch(count * 2 * channels), count, each)


def statistics(make: LaunchBuilder, norm: SharedStruct, z: TypedPointer, rows: int, ld: int) -> list[Launch]:
    """The batch's statistics of z, by a pass over it."""
    made = _parts_of_a_pass(make, norm, rows)
    channels = int_field(norm.fields, "channels")
    kernel = make.kernel("batch_norm", "batch_norm_statistics", Z=z.type)
    arguments = (z, made.scratch, rows, channels, ld, made.each, made.count)
    counted = make.by_channel(kernel, arguments, channels, made.count)
    return [counted, merge_statistics(make, norm, made, rows)]


def merge_statistics(make: LaunchBuilder, norm: SharedStruct, made: PartialSums, rows: int) -> Launch:
    """Ends a forward step with a norm: mean, inv_std, scale, shift and running statistics."""
    names = ("gamma", "beta", "running_mean", "running_var", "mean", "inv_std", "scale", "shift")
    fields = norm.fields
    channels = int_field(fields, "channels")
    places = [pointer_field(fields, name) for name in names]
    constants = (float_field(fields, "epsilon"), float_field(fields, "momentum"), channels)
    kernel = make.kernel("batch_norm", "batch_norm_merge_statistics", Z="float")
    return make.over(kernel, (made.scratch, made.count, made.each, rows, *places, *constants), channels)


def sink_sums(make: LaunchBuilder, sink: Fields, rows: int) -> list[Launch]:
    """What a sink's norm wants to know of it once it is filled, by a pass over it; nothing where there is no norm."""
    norm = sink.get("norm")
    if not isinstance(norm, SharedStruct):
        return []
    gradient = Gradient(
        pointer_field(sink, "data"), int_field(sink, "ld"), tensor_field(sink, "y"), int_field(sink, "ld_y")
    )
    return gradient_sums(make, norm, gradient, rows)


@dataclass(frozen=True)
class Gradient:
    """g, and the z that its normalisation saw; `act` where g has yet to pass it."""

    g: Pointer | None
    ld_g: int
    z: TypedPointer
    ld_z: int
    act: int = Act.NONE


def gradient_sums(make: LaunchBuilder, norm: SharedStruct, of: Gradient, rows: int) -> list[Launch]:
    made = _parts_of_a_pass(make, norm, rows)
    channels = int_field(norm.fields, "channels")
    kernel = make.kernel("batch_norm", "batch_norm_gradient_sums", Z=of.z.type)
    known = [pointer_field(norm.fields, name) for name in ("mean", "scale", "shift")]
    numbers = (rows, channels, of.ld_g, of.ld_z, of.act, made.each, made.count)
    arguments = (of.g, of.z, *known, made.scratch, *numbers)
    counted = make.by_channel(kernel, arguments, channels, made.count)
    return [counted, merge_gradients(make, norm, made)]


def merge_gradients(make: LaunchBuilder, norm: SharedStruct, made: PartialSums) -> Launch:
    """Ends a step whose sink has a norm: its sums, for the norm's own step."""
    channels = int_field(norm.fields, "channels")
    kernel = make.kernel("batch_norm", "batch_norm_merge_sums", Z="float")
    return make.over(kernel, (made.scratch, made.count, pointer_field(norm.fields, "sums"), channels), 2 * channels)


def _parts_of_a_pass(make: LaunchBuilder, norm: SharedStruct, rows: int) -> PartialSums:
    channels = int_field(norm.fields, "channels")
    wanted = -(-ITEMS_A_UNIT * make.limits.compute_units // channels)
    return make_partial_sums(make, rows, max(LEAST_ROWS, -(-rows // wanted)), channels)
