"""Restores the state that the run spec names: held in memory by phones, in a checkpoint file, or the initial state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.world import World
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import RunSpec
from phone_agent.memckpt.checkpointer import NULL_CHECKPOINTER, STATISTICS, Checkpointer, MemoryCheckpointer
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.weights import from_state_dict
from phone_agent.train import checkpoint, local_sgd, optimizers
from phone_agent.train.local_sgd import LocalSgd
from phone_agent.train.optimizers import Optimizer

Array = NDArray[Any]
Allreduce = Callable[[NDArray[np.float32]], None]


@dataclass(frozen=True)
class Recovery:
    """Where training resumes, and how its steps are committed."""

    step: int = 0  # the last completed step
    source: str = "start"  # or memory, checkpoint
    checkpointer: Checkpointer | MemoryCheckpointer = NULL_CHECKPOINTER


def open_checkpointer(  # noqa: PLR0917 - parts of a run, in the order they are built
    run: Path,
    spec: RunSpec,
    state: State,
    reducer_buffers: Mapping[str, Array],
    mapped: Collection[str],
    world: World,
    warn: Callable[[str], None],
) -> MemoryCheckpointer:
    """Moves the `mapped` buffers of the state into the checkpoint server's memory, so call it before anything takes
    their addresses. The server listens in `run`, the run's directory."""
    local = local_sgd.state_names(spec.communication.local_steps, spec.communication.outer_momentum)
    packed = ("values", *optimizers.state_names(spec.optimizer), *local)
    like = {**dict.fromkeys(packed, state.values), STATISTICS: state.statistics, **reducer_buffers}
    checkpointer = MemoryCheckpointer(run, spec.attempt, spec.resume.in_memory, like, mapped, world, warn)
    for name, live in checkpointer.live.items():
        state.place(name, live, keep_contents=checkpointer.restores)
    return checkpointer


def all_buffers(state: State, optimizer: Optimizer, reducer_buffers: Mapping[str, Array]) -> dict[str, Array]:
    """The complete training state: together with the run spec, it determines all further steps."""
    buffers = {"values": state.values, STATISTICS: state.statistics, **optimizer.buffers, **reducer_buffers}
    if isinstance(optimizer, LocalSgd):
        buffers["anchor"] = optimizer.anchor
    return buffers


def resume(  # noqa: PLR0917 - parts of a run, in the order they are built
    run: Path,
    spec: RunSpec,
    graph: Graph,
    state: State,
    optimizer: Optimizer,
    reducer_buffers: Mapping[str, Array],
    world: World,
    allreduce: Allreduce,
    checkpointer: MemoryCheckpointer | None = None,
) -> Recovery:
    """Restores the training state. `run` is the run's directory, with the checkpoint file if one was given."""
    buffers = all_buffers(state, optimizer, reducer_buffers)
    if spec.resume.file:
        _load_checkpoint(run, spec, graph, state, optimizer, world)
        for buffer in (state.values, state.statistics, *optimizer.buffers.values()):
            _broadcast_from_head(buffer, world.rank, allreduce)
        if "anchor" in buffers:
            buffers["anchor"][...] = state.values
    if checkpointer:
        checkpointer.begin(spec.resume.step, buffers, allreduce)
    source = "checkpoint" if spec.resume.file else "memory" if spec.resume.in_memory else "start"
    return Recovery(spec.resume.step, source, checkpointer or NULL_CHECKPOINTER)


def _load_checkpoint(  # noqa: PLR0917 - parts of a run, in the order they are built
    run: Path, spec: RunSpec, graph: Graph, state: State, optimizer: Optimizer, world: World
) -> None:
    """Only the head phone has the file."""
    if world.rank == 0:
        path = run / spec.resume.file
        saved = checkpoint.read(path)
        if saved.info.step != spec.resume.step:
            raise AgentError(
                f"{path.name} has step {saved.info.step}, not {spec.resume.step}", code=ErrorCode.BAD_CHECKPOINT
            )
        from_state_dict(graph, state, saved.weights)
        for name, buffer in optimizer.buffers.items():
            if name not in saved.optimizer_state or saved.optimizer_state[name].shape != buffer.shape:
                raise AgentError(
                    f"{path.name} lacks the optimizer state '{name}': start a new run with --weights",
                    code=ErrorCode.BAD_CHECKPOINT,
                )
            buffer[...] = state.packing.repack(saved.optimizer_state[name], saved.packing)


def _broadcast_from_head(buffer: Array, rank: int, allreduce: Allreduce) -> None:
    """As an allreduce to which all other ranks contribute zeros."""
    if rank != 0:
        buffer[...] = 0
    if buffer.size:
        allreduce(buffer)
