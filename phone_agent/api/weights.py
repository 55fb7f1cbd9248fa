"""Weights and checkpoints: read from files, loaded into a network, exported."""

from __future__ import annotations

from pathlib import Path

from phone_agent.nn.packing import State
from phone_agent.nn.weights import WeightsError, from_state_dict, load_pretrained, to_state_dict
from phone_agent.train import checkpoint
from phone_agent.train.checkpoint import Checkpoint, CheckpointMetadata, checkpoint_ranks

__all__ = [
    "Checkpoint",
    "CheckpointMetadata",
    "State",
    "WeightsError",
    "checkpoint_ranks",
    "from_state_dict",
    "load_pretrained",
    "read_checkpoint",
    "to_state_dict",
]


def read_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint of a run, or a safetensors file from elsewhere; that one says nothing of itself."""
    return checkpoint.read(path)
