"""The learning rate of every step: a function of the step's number alone, so a run goes on anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import OptimizerSpec, ScheduleSpec


class ScheduleError(AgentError):
    """A policy that cannot be."""

    code = ErrorCode.BAD_REQUEST


def rate(optimizer: OptimizerSpec, schedule: ScheduleSpec, step: int, steps: int) -> float:
    """Of step `step` of `steps`, counted from 1. The rise ends at the highest; what follows goes on from there."""
    if step < schedule.warmup_steps:
        return optimizer.learning_rate * step / schedule.warmup_steps
    return optimizer.learning_rate * POLICIES[schedule.policy](schedule, step, steps)


def check(schedule: ScheduleSpec) -> None:
    if schedule.policy not in POLICIES:
        raise ScheduleError(f"no schedule '{schedule.policy}'; there is: {', '.join(POLICIES)}")
    if schedule.policy == "step" and schedule.decay_steps < 1:
        raise ScheduleError("the step schedule needs to know how many steps, or epochs, there are between two")


def scaled(base_rate: float, base_batch: int, batch: int) -> float:
    """The linear scaling rule: so many times the batch, so many times the rate. (Goyal et al., 2017)"""
    return base_rate * batch / base_batch


def _constant(_: ScheduleSpec, __: int, ___: int) -> float:
    return 1.0


def _step(schedule: ScheduleSpec, step: int, _: int) -> float:
    """Counted from the run's first step, as in Caffe: a rise shortens the first stretch."""
    return float(schedule.gamma ** ((step - 1) // schedule.decay_steps))


def _polynomial(schedule: ScheduleSpec, step: int, steps: int) -> float:
    return _above_floor(schedule, (1 - _done(schedule, step, steps)) ** schedule.power)


def _cosine(schedule: ScheduleSpec, step: int, steps: int) -> float:
    return _above_floor(schedule, (1 + math.cos(math.pi * _done(schedule, step, steps))) / 2)


def _above_floor(schedule: ScheduleSpec, part: float) -> float:
    return float(schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * part)


def _done(schedule: ScheduleSpec, step: int, steps: int) -> float:
    """What part of the way down is behind: 0 at the highest, 1 one step after the last."""
    highest = max(schedule.warmup_steps, 1)
    return min(1.0, (step - highest) / max(1, steps + 1 - highest))


POLICIES: dict[str, Callable[[ScheduleSpec, int, int], float]] = {
    "constant": _constant,
    "step": _step,
    "polynomial": _polynomial,
    "cosine": _cosine,
}
