"""Writes the newest step that this phone holds in memory to a checkpoint file, without any rank.

Running statistics are those of this phone alone: only ranks that work together can combine them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.data import open_dataset
from phone_agent.job import run_directory
from phone_agent.memckpt import client
from phone_agent.memckpt.checkpointer import STATISTICS
from phone_agent.memckpt.replica import Replica
from phone_agent.nn.packing import State
from phone_agent.train import checkpoint, local_sgd, optimizers
from phone_agent.train.initial_state import build_graph


def write_from_memory(run: Path) -> dict[str, Any]:
    """The manifest of the file. To be called when no rank is running: ranks change the memory."""
    held = _open_replica(run)
    committed = max(held.committed_steps(), default=None)
    if committed is None:
        raise client.CheckpointServerError("this phone holds no complete step in memory")
    buffers = held.read(committed)
    spec = run_directory.read_spec(run_directory.newest(run))
    graph = build_graph(run, spec)
    state = State(graph, spec.seed)
    state.values, state.statistics = buffers["values"], buffers[STATISTICS]
    dataset = open_dataset(replace(spec.data, replicated=True), spec.seed)  # no sample of it is read
    local = local_sgd.state_names(spec.communication.local_steps, spec.communication.outer_momentum)
    names = (*optimizers.state_names(spec.optimizer), *(name for name in local if name != "anchor"))
    events: list[tuple[str, dict[str, Any]]] = []
    metadata = checkpoint.build_metadata(spec, state, dataset)
    writer = checkpoint.CheckpointWriter(run, graph, metadata, lambda kind, **fields: events.append((kind, fields)))
    writer.save(committed.step, state, {name: buffers[name] for name in names})
    writer.close()
    kind, fields = events[-1]
    if kind != "checkpoint":
        raise AgentError(fields["message"], code=ErrorCode.DISK_FULL)
    return fields


def _open_replica(run: Path) -> Replica:
    connection = client.CheckpointClient(run)
    try:
        descriptor, signature = connection.read()
    finally:
        connection.close()
    like = {name: np.empty(size, dtype) for name, dtype, size, _ in signature}
    replica = Replica(descriptor, like, {name for name, _, _, mapped in signature if mapped})
    os.close(descriptor)
    return replica
