"""A rank's side of in-memory checkpoints: when each step is committed, and what a new attempt resumes from.

Values and momenta live in the checkpoint server's memory, next to one snapshot of them. Two header entries record
which step each belongs to. At the end of step n, the communication thread does this:

    before ranks exchange their results    live is committed as n; the snapshot still holds n - 1
    after the exchange                     the snapshot becomes n, then live is free to change for step n + 1

A rank killed at any moment leaves a complete state, because each entry is cleared only while the other is valid. And
all ranks that took part until the end have a step in common: from the moment the first of them completes the exchange
of step n until the first completes that of n + 1, each holds n. When the first completes the exchange, every rank has
committed n; a rank clears that commit only once its snapshot holds n, and overwrites the snapshot only after it has
itself completed the exchange of n + 1. So a step that any rank reported is held on every phone. No other
synchronization is needed: ranks that take local steps exchange results at each step as well.

All other state (running statistics, second momenta, residuals, anchors) is copied before n is committed, over the copy
of n - 2, which no valid entry refers to. Where no buffer can live in the server's memory, all state is copied so.

The host chooses the state that a new attempt resumes from, by what the phones held when the last attempt had ended. A
rank uses its memory only if it holds exactly that state; all other ranks receive it, or all load a checkpoint file.

A new attempt ends its start-up as a step ends: the snapshot is valid, live is not. Until all ranks have reached that
point, holders have the chosen step in their snapshots and use live as working memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.world import World
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.memckpt import replica
from phone_agent.memckpt.client import OPEN_TIMEOUT_S, CheckpointClient

Array = NDArray[Any]
STATISTICS = "statistics"
PER_RANK = frozenset({"residuals"})  # differ between ranks: a rank without a copy of its own starts from zero


class Checkpointer(Protocol):
    """The compute thread calls `capture_statistics` when it finishes a step. The communication thread calls the other
    two, before and after ranks exchange the step's results."""

    def capture_statistics(self, step: int) -> None: ...

    def commit(self, step: int) -> None: ...

    def take_snapshot(self, step: int) -> None: ...


class NullCheckpointer:
    """For measurements and tests that need no recovery."""

    def capture_statistics(self, step: int) -> None:
        """Nothing outlives this process."""

    def commit(self, step: int) -> None:
        """Nothing outlives this process."""

    def take_snapshot(self, step: int) -> None:
        """Nothing outlives this process."""


NULL_CHECKPOINTER = NullCheckpointer()


class StateLostError(AgentError):
    """No phone holds the state that the attempt resumes from. Another attempt may resume from a checkpoint."""

    code = ErrorCode.STATE_LOST


class MemoryCheckpointer:
    """`like` has arrays with the types and sizes of all buffers. `mapped` names those that live in the server's memory:
    `live` holds them, and the training state uses them from now on.

    `resume_from`: the state to restore from memory. Then the content of `live` is meaningful and must not change before
    `begin`. None: the state comes from elsewhere and belongs into `live`.

    Running statistics change while a commit is in progress, so the compute thread captures them when its step ends."""

    def __init__(  # noqa: PLR0917 - the run, its state, and the ranks it is shared with
        self,
        run: Path,
        attempt: int,
        resume_from: CommittedStep | None,
        like: Mapping[str, Array],
        mapped: Collection[str],
        world: World,
        warn: Callable[[str], None],
    ) -> None:
        self._attempt, self._world, self._resume_from = attempt, world, resume_from
        self._client = CheckpointClient(run, OPEN_TIMEOUT_S)
        descriptor, kind = self._client.open(replica.signature(like, mapped), replica.size(like))
        self._replica = replica.Replica(descriptor, like, mapped)
        os.close(descriptor)
        self._holders = self._find_holders(resume_from) if resume_from else ()
        if resume_from is None:
            self._replica.invalidate_live()
        self._buffers: dict[str, Array] = {}
        self._captured: dict[int, Array] = {}
        self.seconds = 0.0  # spent on commits and snapshots in total
        if kind != "memory":
            warn("the kernel has no memfd: in-memory checkpoints are stored in a file, which wears the flash")

    @property
    def live(self) -> dict[str, Array]:
        return self._replica.live

    @property
    def restores(self) -> bool:
        """Whether the state is restored from memory."""
        return self._resume_from is not None

    def capture_statistics(self, step: int) -> None:
        self._captured[step] = self._buffers[STATISTICS].copy()

    def commit(self, step: int) -> None:
        statistics = self._captured.pop(step)
        with self._timed():
            self._replica.commit(CommittedStep(step, self._attempt), {**self._buffers, STATISTICS: statistics})

    def take_snapshot(self, step: int) -> None:
        with self._timed():
            self._replica.take_snapshot(CommittedStep(step, self._attempt))

    def begin(self, step: int, buffers: Mapping[str, Array], allreduce: Callable[[NDArray[np.float32]], None]) -> None:
        """Start training after `step`, from the state restored from memory or else from the content of `buffers`.
        `buffers` is the whole training state, including the live buffers."""
        self._buffers = dict(buffers)
        if self._resume_from is not None:
            self._restore(self._resume_from, allreduce)
        elif step:
            self._replica.overwrite(CommittedStep(step, self._attempt), self._buffers)
        else:
            self._replica.clear()

    def close(self) -> None:
        """Disconnect. The server keeps the state."""
        self._client.close()

    def discard(self) -> None:
        """Stop the server when the run is done. If that fails, the next run stops it. The live buffers remain valid as
        long as this process maps them."""
        with suppress(OSError, ValueError):
            self._client.query("stop")
        self.close()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds += time.monotonic() - started

    def _find_holders(self, committed: CommittedStep) -> tuple[int, ...]:
        """The ranks that hold this state."""
        holds_it = committed in self._replica.committed_steps()
        holders = tuple(np.flatnonzero(self._world.allgather(np.array([float(holds_it)]))).tolist())
        if not holders:
            self.close()
            raise StateLostError(
                f"no phone holds step {committed.step} of attempt {committed.attempt} in memory any more"
            )
        return holders

    def _restore(self, committed: CommittedStep, allreduce: Callable[[NDArray[np.float32]], None]) -> None:
        """Ranks without this state get it from the first holder."""
        rank = self._world.rank
        holds_it = rank in self._holders
        if holds_it:
            self._replica.ensure_snapshot(committed)
            self._replica.load(committed, self._buffers)
        self._replica.invalidate_live()
        if len(self._holders) < self._world.size:
            self._broadcast(rank, self._holders[0], allreduce)
            if holds_it:
                self._replica.load(committed, self._buffers)
        self._world.allgather(np.zeros(1))  # barrier: no rank assigns it to this attempt before all ranks have it
        if holds_it:
            self._replica.set_attempt(self._attempt)
        else:
            self._replica.overwrite(CommittedStep(committed.step, self._attempt), self._buffers)

    def _broadcast(self, rank: int, source: int, allreduce: Callable[[NDArray[np.float32]], None]) -> None:
        """As an allreduce to which all other ranks contribute zeros. Holders reload their own state afterwards."""
        for name, buffer in self._buffers.items():
            if rank != source or name in PER_RANK:
                buffer[...] = 0
            if buffer.size and name not in PER_RANK:
                allreduce(buffer)
