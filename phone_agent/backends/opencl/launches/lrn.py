"""Local response normalisation."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, Maker
from phone_agent.backends.opencl.launches.operands import Fields, fields, number, place, sink, source, stored, whole
from phone_agent.backends.opencl.launches.sums import sink_sums
from phone_agent.nn.plan.ops import Step


def lrn_forward(step: Step, make: Maker) -> list[Launch]:
    of, x, y = step.fields, fields(step.fields["x"]), stored(step.fields, "y")
    kernel = make.kernel("lrn", "lrn_forward", X=stored(x, "data").type, Y=y.type, M="float")
    rows, channels = whole(of, "rows"), whole(of, "channels")
    numbers = (rows, channels, whole(of, "ld_y"), whole(of, "size"), *_constants(of))
    return [make.by_channel(kernel, (*source(x), y, *numbers), channels, rows)]


def lrn_backward(step: Step, make: Maker) -> list[Launch]:
    of, x, dx = step.fields, fields(step.fields["x"]), fields(step.fields["dx"])
    kernel = make.kernel("lrn", "lrn_backward", X=stored(x, "data").type, Y="float", M=stored(dx, "y").type)
    rows, channels = whole(of, "rows"), whole(of, "channels")
    numbers = (rows, channels, whole(of, "ld_dy"), whole(of, "size"), *_constants(of))
    arguments = (*source(x), place(of, "dy"), *sink(dx), *numbers)
    return [make.by_channel(kernel, arguments, channels, rows), *sink_sums(make, dx, rows)]


def _constants(of: Fields) -> list[float]:
    return [number(of, name) for name in ("alpha", "beta", "k")]
