"""Elementwise addition and copy, forward and backward."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder
from phone_agent.backends.opencl.launches.operands import (
    input_arguments,
    int_field,
    pointer_field,
    struct_field,
    tensor_field,
)
from phone_agent.nn.plan.ops import OpSpec


def add_forward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, a = op.fields, struct_field(op.fields["a"])
    both = bool(of.get("b"))
    b, y = struct_field(of["b"]) if both else {}, tensor_field(of, "y")
    kernel = builder.kernel(
        "add", "add_forward", A=tensor_field(a, "data").type, B=tensor_field(b, "data").type, Y=y.type
    )
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    arguments = (
        *input_arguments(a),
        *input_arguments(b),
        y,
        rows,
        channels,
        int_field(of, "ld_y"),
        int_field(of, "act"),
        both,
    )
    return [builder.launch_per_channel(kernel, arguments, channels, rows)]


def add_backward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, y = op.fields, tensor_field(op.fields, "y")
    kernel = builder.kernel("add", "add_backward", A="float", B="float", Y=y.type)
    numbers = [int_field(of, name) for name in ("rows", "channels", "ld_dy", "ld_y", "ld_target", "act", "accumulate")]
    arguments = (pointer_field(of, "dy"), y, pointer_field(of, "target"), *numbers)
    return [builder.launch_per_channel(kernel, arguments, int_field(of, "channels"), int_field(of, "rows"))]
