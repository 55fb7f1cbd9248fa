"""Batch normalisation where no other step does it: statistics, folding for evaluation, the gradient."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, Maker, Scratch
from phone_agent.backends.opencl.launches.operands import Fields, norm_of, number, place, stored, whole
from phone_agent.backends.opencl.launches.sums import Gradient, gradient_sums, statistics
from phone_agent.core.ops import Act
from phone_agent.nn.plan.ops import Step


def norm_forward(step: Step, make: Maker) -> list[Launch]:
    of = step.fields
    return statistics(make, norm_of(of), stored(of, "z"), whole(of, "rows"), whole(of, "ld_z"))


def norm_fold(step: Step, make: Maker) -> list[Launch]:
    norm = norm_of(step.fields).fields
    names = ("gamma", "beta", "running_mean", "running_var", "mean", "inv_std", "scale", "shift")
    channels = whole(norm, "channels")
    kernel = make.kernel("norm", "fold", Z="float")
    places = [place(norm, name) for name in names]
    return [make.over(kernel, (*places, number(norm, "epsilon"), channels), channels)]


def norm_backward(step: Step, make: Maker) -> list[Launch]:
    """The sums, where no sink has gathered them; what follows from them; the pass that applies it."""
    of, norm = step.fields, norm_of(step.fields)
    reduced, rows = whole(of, "reduced"), whole(of, "rows")
    act = Act.NONE if reduced else whole(of, "act")
    gradient = Gradient(place(of, "dy"), whole(of, "ld_dy"), stored(of, "z"), whole(of, "ld_z"), act)
    sums = [] if reduced else gradient_sums(make, norm, gradient, rows)
    k = make.scratch(3 * whole(norm.fields, "channels"))
    return [*sums, _coefficients(make, norm.fields, k, rows), _spread(make, of, gradient, k)]


def _coefficients(make: Maker, norm: Fields, k: Scratch, rows: int) -> Launch:
    channels = whole(norm, "channels")
    places = [place(norm, name) for name in ("sums", "gamma", "inv_std", "dgamma", "dbeta")]
    kernel = make.kernel("norm", "coefficients", Z="float")
    return make.over(kernel, (*places, k, rows, channels, make.adding), channels)


def _spread(make: Maker, of: Fields, gradient: Gradient, k: Scratch) -> Launch:
    norm = norm_of(of).fields
    channels, rows = whole(norm, "channels"), whole(of, "rows")
    known = [place(norm, name) for name in ("mean", "scale", "shift")]
    numbers = (rows, channels, gradient.ld_z, gradient.ld_g, whole(of, "ld_dz"), gradient.act)
    kernel = make.kernel("norm", "spread", Z=gradient.z.type)
    arguments = (k, gradient.z, gradient.g, place(of, "dz"), *known, *numbers)
    return make.by_channel(kernel, arguments, channels, rows)
