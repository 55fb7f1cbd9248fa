"""Training: checks of a request before a phone is involved; weights and checkpoints."""

from __future__ import annotations

from phone_agent.data.augment import recipe
from phone_agent.nn.packing import State
from phone_agent.nn.weights import WeightsError, from_state_dict, load_pretrained, to_state_dict
from phone_agent.train.checkpoint import Checkpoint, CheckpointMetadata, checkpoint_ranks
from phone_agent.train.checkpoint import read as read_checkpoint
from phone_agent.train.initial_state import freeze
from phone_agent.train.optimizers import check as check_optimizer
from phone_agent.train.schedules import check as check_schedule
from phone_agent.train.schedules import linear_scaling
