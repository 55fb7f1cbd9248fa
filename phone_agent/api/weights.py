"""Weights and checkpoints: read from files, loaded into a network, exported."""

from __future__ import annotations

from phone_agent.nn.packing import State
from phone_agent.nn.weights import WeightsError, from_state_dict, load_pretrained, to_state_dict
from phone_agent.train.checkpoint import Checkpoint, CheckpointMetadata, checkpoint_ranks
from phone_agent.train.checkpoint import read as read_checkpoint
