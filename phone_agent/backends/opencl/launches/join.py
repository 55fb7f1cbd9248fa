"""Residual sums, and gradients from one place to another."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, Maker
from phone_agent.backends.opencl.launches.operands import fields, place, source, stored, whole
from phone_agent.nn.plan.ops import Step


def join_forward(step: Step, make: Maker) -> list[Launch]:
    of, a = step.fields, fields(step.fields["a"])
    both = bool(of.get("b"))
    b, y = fields(of["b"]) if both else {}, stored(of, "y")
    kernel = make.kernel("join", "join_forward", A=stored(a, "data").type, B=stored(b, "data").type, Y=y.type)
    rows, channels = whole(of, "rows"), whole(of, "channels")
    arguments = (*source(a), *source(b), y, rows, channels, whole(of, "ld_y"), whole(of, "act"), both)
    return [make.by_channel(kernel, arguments, channels, rows)]


def join_backward(step: Step, make: Maker) -> list[Launch]:
    of, y = step.fields, stored(step.fields, "y")
    kernel = make.kernel("join", "join_backward", A="float", B="float", Y=y.type)
    numbers = [whole(of, name) for name in ("rows", "channels", "ld_dy", "ld_y", "ld_target", "act", "accumulate")]
    arguments = (place(of, "dy"), y, place(of, "target"), *numbers)
    return [make.by_channel(kernel, arguments, whole(of, "channels"), whole(of, "rows"))]
