"""Local response normalisation."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder
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


def lrn_forward(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    of, x, y = step.fields, struct_field(step.fields["x"]), tensor_field(step.fields, "y")
    kernel = make.kernel("lrn", "lrn_forward", X=tensor_field(x, "data").type, Y=y.type, M="float")
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    numbers = (rows, channels, int_field(of, "ld_y"), int_field(of, "size"), *_constants(of))
    return [make.by_channel(kernel, (*source(x), y, *numbers), channels, rows)]


def lrn_backward(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    of, x, dx = step.fields, struct_field(step.fields["x"]), struct_field(step.fields["dx"])
    kernel = make.kernel("lrn", "lrn_backward", X=tensor_field(x, "data").type, Y="float", M=tensor_field(dx, "y").type)
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    numbers = (rows, channels, int_field(of, "ld_dy"), int_field(of, "size"), *_constants(of))
    arguments = (*source(x), pointer_field(of, "dy"), *sink(dx), *numbers)
    return [make.by_channel(kernel, arguments, channels, rows), *sink_sums(make, dx, rows)]


def _constants(of: Fields) -> list[float]:
    return [float_field(of, name) for name in ("alpha", "beta", "k")]
