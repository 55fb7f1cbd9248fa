"""Checks of what a run is asked to train with, before a phone is involved."""

from __future__ import annotations

from phone_agent.contract.schema import OptimizerSpec, ScheduleSpec
from phone_agent.data.augment import UnknownAugmentationError, recipe
from phone_agent.train import optimizers, schedules
from phone_agent.train.initial_state import FreezeError, freeze
from phone_agent.train.schedules import linear_scaling

__all__ = [
    "FreezeError",
    "UnknownAugmentationError",
    "check_optimizer",
    "check_schedule",
    "freeze",
    "linear_scaling",
    "recipe",
]


def check_optimizer(spec: OptimizerSpec) -> None:
    """Raises AgentError for an unknown method, or for values that it cannot train with."""
    optimizers.check(spec)


def check_schedule(spec: ScheduleSpec) -> None:
    """Raises AgentError for an unknown policy, or for values that make no schedule."""
    schedules.check(spec)
