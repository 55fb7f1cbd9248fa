"""Pooling, forward and backward."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, Maker, Stored
from phone_agent.backends.opencl.launches.operands import fields, geometry, place, sink, source, stored, whole
from phone_agent.backends.opencl.launches.sums import sink_sums
from phone_agent.nn.plan.ops import Step


def pool_forward(step: Step, make: Maker) -> list[Launch]:
    of, x, g = step.fields, fields(step.fields["x"]), fields(step.fields["g"])
    y, argmax = stored(of, "y"), place(of, "argmax")
    kernel = make.kernel("pool", "pool_forward", X=stored(x, "data").type, Y=y.type, M="float")
    numbers = [whole(of, name) for name in ("ld_y", "pooling", "count_padding")]
    arguments = [*geometry(g), *source(x), y, Stored(argmax, 1), *numbers, int(argmax is not None)]
    pixels = whole(g, "batch") * whole(g, "out_h") * whole(g, "out_w")
    return [make.by_channel(kernel, arguments, whole(g, "out_c"), pixels)]


def pool_backward(step: Step, make: Maker) -> list[Launch]:
    of, dx, g = step.fields, fields(step.fields["dx"]), fields(step.fields["g"])
    kernel = make.kernel("pool", "pool_backward", X="float", Y="float", M=stored(dx, "y").type)
    numbers = [whole(of, name) for name in ("ld_dy", "pooling", "count_padding")]
    arguments = [*geometry(g), place(of, "dy"), Stored(place(of, "argmax"), 1), *sink(dx), *numbers]
    pixels = whole(g, "batch") * whole(g, "in_h") * whole(g, "in_w")
    return [make.by_channel(kernel, arguments, whole(g, "in_c"), pixels), *sink_sums(make, dx, pixels)]
