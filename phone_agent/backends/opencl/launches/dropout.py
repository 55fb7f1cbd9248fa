"""Dropout, with the bits that the core draws: see nn/dropout.py."""

from __future__ import annotations

import numpy as np

from phone_agent.backends.opencl.emit import Argument, Launch, LaunchBuilder
from phone_agent.backends.opencl.launches.operands import (
    Fields,
    float_field,
    int_field,
    pointer_field,
    sink,
    source,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import sink_sums
from phone_agent.nn.plan.ops import OpSpec

LARGEST = 0xFFFFFFFF


def dropout_forward(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    of, x, y = step.fields, struct_field(step.fields["x"]), tensor_field(step.fields, "y")
    kernel = make.kernel("dropout", "dropout_forward", X=tensor_field(x, "data").type, Y=y.type, M="float")
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    arguments = (*source(x), y, pointer_field(of, "seed"), rows, channels, int_field(of, "ld_y"), *_lottery(of))
    return [make.by_channel(kernel, arguments, channels, rows)]


def dropout_backward(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    of, dx = step.fields, struct_field(step.fields["dx"])
    kernel = make.kernel("dropout", "dropout_backward", X="float", Y="float", M=tensor_field(dx, "y").type)
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    numbers = (rows, channels, int_field(of, "ld_dy"), *_lottery(of))
    arguments = (pointer_field(of, "dy"), *sink(dx), pointer_field(of, "seed"), *numbers)
    return [make.by_channel(kernel, arguments, channels, rows), *sink_sums(make, dx, rows)]


def _lottery(of: Fields) -> list[Argument]:
    """Salt, threshold, and what a kept element is multiplied with."""
    rate = np.float32(float_field(of, "rate"))
    threshold = min(int(float(rate) * 2**32), LARGEST)
    return [np.uint32(int_field(of, "salt")), np.uint32(threshold), np.float32(1) / (np.float32(1) - rate)]
