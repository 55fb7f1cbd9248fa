"""Learning rate schedules: functions of the step number alone, so that a run can resume anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable

from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.schema import OptimizerSpec, ScheduleSpec


def learning_rate(optimizer: OptimizerSpec, schedule: ScheduleSpec, step: int, steps: int) -> float:
    """For step `step` of `steps`, counted from 1. Linear warm-up to the peak, then the policy."""
    if step < schedule.warmup_steps:
        return optimizer.learning_rate * step / schedule.warmup_steps
    return optimizer.learning_rate * POLICIES[schedule.policy](schedule, step, steps)


def check(schedule: ScheduleSpec) -> None:
    if schedule.policy not in POLICIES:
        raise BadRequestError(f"unknown schedule '{schedule.policy}'; choose one of: {', '.join(POLICIES)}")
    if schedule.policy == "step" and schedule.decay_steps < 1:
        raise BadRequestError("the step schedule needs the number of steps or epochs between two decays")


def linear_scaling(base_rate: float, base_batch: int, batch: int) -> float:
    """Linear scaling rule: the learning rate grows in proportion to the batch size (Goyal et al., 2017)."""
    return base_rate * batch / base_batch


def _constant(_: ScheduleSpec, __: int, ___: int) -> float:
    return 1.0


def _step(schedule: ScheduleSpec, step: int, _: int) -> float:
    """Counted from the first step of the run, as in Caffe: warm-up shortens the first stage."""
    return float(schedule.gamma ** ((step - 1) // schedule.decay_steps))


def _polynomial(schedule: ScheduleSpec, step: int, steps: int) -> float:
    return _above_minimum(schedule, (1 - _progress(schedule, step, steps)) ** schedule.power)


def _cosine(schedule: ScheduleSpec, step: int, steps: int) -> float:
    return _above_minimum(schedule, (1 + math.cos(math.pi * _progress(schedule, step, steps))) / 2)


def _above_minimum(schedule: ScheduleSpec, fraction: float) -> float:
    return float(schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * fraction)


def _progress(schedule: ScheduleSpec, step: int, steps: int) -> float:
    """Fraction of the decay that is done: 0 at the peak, 1 one step after the last."""
    peak = max(schedule.warmup_steps, 1)
    return min(1.0, (step - peak) / max(1, steps + 1 - peak))


POLICIES: dict[str, Callable[[ScheduleSpec, int, int], float]] = {
    "constant": _constant,
    "step": _step,
    "polynomial": _polynomial,
    "cosine": _cosine,
}
