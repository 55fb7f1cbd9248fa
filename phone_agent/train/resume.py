"""What an attempt goes on from: what phones hold in memory; else the checkpoint that was given; else the start."""

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
class Resumed:
    step: int = 0  # the last that is done
    source: str = "start"  # or memory, checkpoint
    keep: Checkpointer | MemoryCheckpointer = NULL_CHECKPOINTER


def open_kept(  # noqa: PLR0917 - a run's parts, as they are built
    run: Path,
    spec: RunSpec,
    state: State,
    summing: Mapping[str, Array],
    living: Collection[str],
    world: World,
    warn: Callable[[str], None],
) -> MemoryCheckpointer:
    """`run` is the run's directory, where the keeper listens; `summing`, what is remembered to sum gradients. From now
    on what is `living` of the state lives in the keeper's memory, so this comes before anyone takes an address of it.
    """
    alone = local_sgd.remembered(spec.communication.local_steps, spec.communication.outer_momentum)
    packed = ("values", *optimizers.remembered(spec.optimizer), *alone)
    like = {**dict.fromkeys(packed, state.values), STATISTICS: state.statistics, **summing}
    kept = MemoryCheckpointer(run, spec.attempt, like, living, world, warn)
    for name, there in kept.live.items():
        state.place(name, there, keep_contents=kept.has_state)
    return kept


def buffers(state: State, optimizer: Optimizer, summing: Mapping[str, Array]) -> dict[str, Array]:
    """All that makes the next steps what they are, besides the run's specification."""
    found = {"values": state.values, STATISTICS: state.statistics, **optimizer.buffers, **summing}
    if isinstance(optimizer, LocalSgd):
        found["anchor"] = optimizer.anchor
    return found


def resume(  # noqa: PLR0917 - a run's parts, as they are built
    run: Path,
    spec: RunSpec,
    graph: Graph,
    state: State,
    optimizer: Optimizer,
    summing: Mapping[str, Array],
    world: World,
    allreduce: Allreduce,
    kept: MemoryCheckpointer | None = None,
) -> Resumed:
    """`run` is the run's directory, where the checkpoint lies; `kept`, if the state is."""
    everything = buffers(state, optimizer, summing)
    if kept and (step := kept.restore(everything, allreduce)):
        return Resumed(step, "memory", kept)
    keep = kept or NULL_CHECKPOINTER
    if spec.resume:
        step = _from_checkpoint(run / spec.resume, graph, state, optimizer, world)
        for buffer in (state.values, state.statistics, *optimizer.buffers.values()):
            _from_head(buffer, world.rank, allreduce)
        if "anchor" in everything:
            everything["anchor"][...] = state.values
        return Resumed(step, "checkpoint", keep)
    return Resumed(keep=keep)


def _from_checkpoint(path: Path, graph: Graph, state: State, optimizer: Optimizer, world: World) -> int:
    """Only the head phone has the file."""
    step = 0
    if world.rank == 0:
        saved = checkpoint.read(path)
        from_state_dict(graph, state, saved.weights)
        for name, buffer in optimizer.buffers.items():
            if name not in saved.remembered or saved.remembered[name].shape != buffer.shape:
                raise AgentError(
                    f"{path.name} does not have the optimizer's {name}: start a new run with --weights",
                    code=ErrorCode.BAD_CHECKPOINT,
                )
            buffer[...] = state.packing.repack(saved.remembered[name], saved.packing)
        step = saved.about.step
    return int(world.allgather(np.array([step], np.float64))[0, 0])


def _from_head(buffer: Array, rank: int, allreduce: Allreduce) -> None:
    if rank != 0:
        buffer[...] = 0
    if buffer.size:
        allreduce(buffer)
