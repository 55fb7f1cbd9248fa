"""Checks of what a run is asked to train with, before a phone is involved."""

from __future__ import annotations

from phone_agent.data.augment import recipe
from phone_agent.train.initial_state import freeze
from phone_agent.train.optimizers import check as check_optimizer
from phone_agent.train.schedules import check as check_schedule
from phone_agent.train.schedules import linear_scaling
