"""Pooling and local response normalization, forward and backward."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder, TypedPointer
from phone_agent.backends.opencl.launches.operands import (
    Fields,
    float_field,
    geometry,
    gradient_arguments,
    input_arguments,
    int_field,
    pointer_field,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import fused_gradient_sums
from phone_agent.nn.plan.ops import OpSpec


def pool_forward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, x, g = op.fields, struct_field(op.fields["x"]), struct_field(op.fields["g"])
    y, argmax = tensor_field(of, "y"), pointer_field(of, "argmax")
    kernel = builder.kernel("pooling", "pooling_forward", X=tensor_field(x, "data").type, Y=y.type, M="float")
    numbers = [int_field(of, name) for name in ("ld_y", "pooling", "count_padding")]
    arguments = [*geometry(g), *input_arguments(x), y, TypedPointer(argmax, 1), *numbers, int(argmax is not None)]
    pixels = int_field(g, "batch") * int_field(g, "out_h") * int_field(g, "out_w")
    return [builder.launch_per_channel(kernel, arguments, int_field(g, "out_c"), pixels)]


def pool_backward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, dx, g = op.fields, struct_field(op.fields["dx"]), struct_field(op.fields["g"])
    kernel = builder.kernel("pooling", "pooling_backward", X="float", Y="float", M=tensor_field(dx, "y").type)
    numbers = [int_field(of, name) for name in ("ld_dy", "pooling", "count_padding")]
    arguments = [
        *geometry(g),
        pointer_field(of, "dy"),
        TypedPointer(pointer_field(of, "argmax"), 1),
        *gradient_arguments(dx),
        *numbers,
    ]
    pixels = int_field(g, "batch") * int_field(g, "in_h") * int_field(g, "in_w")
    return [
        builder.launch_per_channel(kernel, arguments, int_field(g, "in_c"), pixels),
        *fused_gradient_sums(builder, dx, pixels),
    ]


def lrn_forward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, x, y = op.fields, struct_field(op.fields["x"]), tensor_field(op.fields, "y")
    kernel = builder.kernel("lrn", "lrn_forward", X=tensor_field(x, "data").type, Y=y.type, M="float")
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    numbers = (rows, channels, int_field(of, "ld_y"), int_field(of, "size"), *_constants(of))
    return [builder.launch_per_channel(kernel, (*input_arguments(x), y, *numbers), channels, rows)]


def lrn_backward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, x, dx = op.fields, struct_field(op.fields["x"]), struct_field(op.fields["dx"])
    kernel = builder.kernel(
        "lrn", "lrn_backward", X=tensor_field(x, "data").type, Y="float", M=tensor_field(dx, "y").type
    )
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    numbers = (rows, channels, int_field(of, "ld_dy"), int_field(of, "size"), *_constants(of))
    arguments = (*input_arguments(x), pointer_field(of, "dy"), *gradient_arguments(dx), *numbers)
    return [builder.launch_per_channel(kernel, arguments, channels, rows), *fused_gradient_sums(builder, dx, rows)]


def _constants(of: Fields) -> list[float]:
    return [float_field(of, name) for name in ("alpha", "beta", "k")]
