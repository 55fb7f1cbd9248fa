"""Optimizer update rules in plain numpy, as in their papers. Used by the reference backend and by tests of the core.

Each updates `values` and its own state in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.schema import OptimizerSpec

Array = NDArray[Any]


@dataclass(frozen=True)
class Rule:
    """Parameters of one update of one segment."""

    spec: OptimizerSpec
    decay: float
    adapted: bool
    rate: float
    step: int


def correction(momentum: float, step: int) -> float:
    """Bias correction of a moving average that started from 0."""
    return 1.0 / (1.0 - momentum**step) if momentum < 1 else 1.0


def sgd(rule: Rule, values: Array, gradients: Array, momenta: Array) -> None:
    momenta[...] = rule.spec.momentum * momenta + gradients + rule.decay * values
    values -= rule.rate * momenta


def nesterov(rule: Rule, values: Array, gradients: Array, momenta: Array) -> None:
    slope = gradients + rule.decay * values
    momenta[...] = rule.spec.momentum * momenta + slope
    values -= rule.rate * (slope + rule.spec.momentum * momenta)


def lars(rule: Rule, values: Array, gradients: Array, momenta: Array) -> None:
    """You, Gitman, Ginsburg: Large batch training of convolutional networks (2017), algorithm 1."""
    ratio = 1.0
    if rule.adapted and (weight := _norm(values)) and (slope := _norm(gradients)):
        ratio = rule.spec.lars_coefficient * weight / (slope + rule.decay * weight)
    momenta[...] = rule.spec.momentum * momenta + rule.rate * ratio * (gradients + rule.decay * values)
    values -= momenta


def lamb(rule: Rule, values: Array, gradients: Array, momenta: Array, second: Array) -> None:
    """You et al.: Large batch optimization for deep learning (2020), algorithm 2."""
    spec = rule.spec
    momenta[...] = spec.momentum * momenta + (1 - spec.momentum) * gradients
    second[...] = spec.beta2 * second + (1 - spec.beta2) * gradients**2
    first_mean = momenta * correction(spec.momentum, rule.step)
    second_mean = second * correction(spec.beta2, rule.step)
    direction = first_mean / (np.sqrt(second_mean) + spec.epsilon) + rule.decay * values
    ratio = 1.0
    if rule.adapted and (weight := _norm(values)) and (length := _norm(direction)):
        ratio = weight / length
    values -= rule.rate * ratio * direction


def _norm(values: Array) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).sum()))


BY_NAME: dict[str, Callable[..., None]] = {"sgd": sgd, "nesterov": nesterov, "lars": lars, "lamb": lamb}
