"""Dropout, with the same mask as the core: see nn/dropout.py."""

from __future__ import annotations

import numpy as np

from phone_agent.backends.opencl.emit import Argument, Launch, LaunchBuilder
from phone_agent.backends.opencl.launches.operands import (
    Fields,
    float_field,
    gradient_arguments,
    input_arguments,
    int_field,
    pointer_field,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import fused_gradient_sums
from phone_agent.nn.plan.ops import OpSpec

MAX_UINT32 = 0xFFFFFFFF


def dropout_forward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, x, y = op.fields, struct_field(op.fields["x"]), tensor_field(op.fields, "y")
    kernel = builder.kernel("dropout", "dropout_forward", X=tensor_field(x, "data").type, Y=y.type, M="float")
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    arguments = (
        *input_arguments(x),
        y,
        pointer_field(of, "seed"),
        rows,
        channels,
        int_field(of, "ld_y"),
        *_mask_arguments(of),
    )
    return [builder.launch_per_channel(kernel, arguments, channels, rows)]


def dropout_backward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, dx = op.fields, struct_field(op.fields["dx"])
    kernel = builder.kernel("dropout", "dropout_backward", X="float", Y="float", M=tensor_field(dx, "y").type)
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    numbers = (rows, channels, int_field(of, "ld_dy"), *_mask_arguments(of))
    arguments = (pointer_field(of, "dy"), *gradient_arguments(dx), pointer_field(of, "seed"), *numbers)
    return [builder.launch_per_channel(kernel, arguments, channels, rows), *fused_gradient_sums(builder, dx, rows)]


def _mask_arguments(of: Fields) -> list[Argument]:
    """Salt, threshold, and the factor of kept elements."""
    rate = np.float32(float_field(of, "rate"))
    threshold = min(int(float(rate) * 2**32), MAX_UINT32)
    return [np.uint32(int_field(of, "salt")), np.uint32(threshold), np.float32(1) / (np.float32(1) - rate)]
