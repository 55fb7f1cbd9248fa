"""Dropout, with the bits that the core draws: see nn/dropout.py."""

from __future__ import annotations

import numpy as np

from phone_agent.backends.opencl.emit import Argument, Launch, Maker
from phone_agent.backends.opencl.launches.operands import Fields, fields, number, place, sink, source, stored, whole
from phone_agent.backends.opencl.launches.sums import sink_sums
from phone_agent.nn.plan.ops import Step

LARGEST = 0xFFFFFFFF


def dropout_forward(step: Step, make: Maker) -> list[Launch]:
    of, x, y = step.fields, fields(step.fields["x"]), stored(step.fields, "y")
    kernel = make.kernel("dropout", "dropout_forward", X=stored(x, "data").type, Y=y.type, M="float")
    rows, channels = whole(of, "rows"), whole(of, "channels")
    arguments = (*source(x), y, place(of, "seed"), rows, channels, whole(of, "ld_y"), *_lottery(of))
    return [make.by_channel(kernel, arguments, channels, rows)]


def dropout_backward(step: Step, make: Maker) -> list[Launch]:
    of, dx = step.fields, fields(step.fields["dx"])
    kernel = make.kernel("dropout", "dropout_backward", X="float", Y="float", M=stored(dx, "y").type)
    rows, channels = whole(of, "rows"), whole(of, "channels")
    numbers = (rows, channels, whole(of, "ld_dy"), *_lottery(of))
    arguments = (place(of, "dy"), *sink(dx), place(of, "seed"), *numbers)
    return [make.by_channel(kernel, arguments, channels, rows), *sink_sums(make, dx, rows)]


def _lottery(of: Fields) -> list[Argument]:
    """Salt, threshold, and what a kept element is multiplied with."""
    rate = np.float32(number(of, "rate"))
    threshold = min(int(float(rate) * 2**32), LARGEST)
    return [np.uint32(whole(of, "salt")), np.uint32(threshold), np.float32(1) / (np.float32(1) - rate)]
