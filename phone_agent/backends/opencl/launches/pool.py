"""Pooling, forward and backward."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder, TypedPointer
from phone_agent.backends.opencl.launches.operands import (
    geometry,
    int_field,
    pointer_field,
    sink,
    source,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import sink_sums
from phone_agent.nn.plan.ops import OpSpec


def pool_forward(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    of, x, g = step.fields, struct_field(step.fields["x"]), struct_field(step.fields["g"])
    y, argmax = tensor_field(of, "y"), pointer_field(of, "argmax")
    kernel = make.kernel("pooling", "pooling_forward", X=tensor_field(x, "data").type, Y=y.type, M="float")
    numbers = [int_field(of, name) for name in ("ld_y", "pooling", "count_padding")]
    arguments = [*geometry(g), *source(x), y, TypedPointer(argmax, 1), *numbers, int(argmax is not None)]
    pixels = int_field(g, "batch") * int_field(g, "out_h") * int_field(g, "out_w")
    return [make.by_channel(kernel, arguments, int_field(g, "out_c"), pixels)]


def pool_backward(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    of, dx, g = step.fields, struct_field(step.fields["dx"]), struct_field(step.fields["g"])
    kernel = make.kernel("pooling", "pooling_backward", X="float", Y="float", M=tensor_field(dx, "y").type)
    numbers = [int_field(of, name) for name in ("ld_dy", "pooling", "count_padding")]
    arguments = [
        *geometry(g),
        pointer_field(of, "dy"),
        TypedPointer(pointer_field(of, "argmax"), 1),
        *sink(dx),
        *numbers,
    ]
    pixels = int_field(g, "batch") * int_field(g, "in_h") * int_field(g, "in_w")
    return [make.by_channel(kernel, arguments, int_field(g, "in_c"), pixels), *sink_sums(make, dx, pixels)]
