"""One rank of a run, from run.json to the last step. mpirun starts one on every phone."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from phone_agent import layout, models, process
from phone_agent.comm import collective
from phone_agent.comm.world import World, open_world
from phone_agent.data import open_dataset
from phone_agent.data.sampling import ShardSource
from phone_agent.device import affinity
from phone_agent.errors import AgentError
from phone_agent.nn.backends import Options, backend
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory import MemoryPlan
from phone_agent.schema import RankSpec, RunSpec
from phone_agent.train import evaluate, progress
from phone_agent.train.budget import plan_memory
from phone_agent.train.checks import own_rank
from phone_agent.train.events import EventLog
from phone_agent.train.loop import Loop

log = logging.getLogger("phone_agent")


def run(directory: Path, spec: RunSpec, threads: int) -> int:
    """Trains; on failure tells why, in this order: rank.log, the event files, mpirun's log; then ends all ranks."""
    logging.Formatter.converter = time.gmtime  # the host merges all phones' logs by time
    logging.basicConfig(filename=directory / layout.RANK_LOG, level=logging.INFO, format="%(asctime)s %(message)s")
    np.seterr(all="ignore")  # a run that diverges is told as an error of its own
    world = open_world()
    with _event_log(directory, spec, world) as events:
        try:
            _Rank(directory, spec, threads, world, events).train()
        except Exception as error:
            log.exception("rank %d failed", world.rank)
            _tell(error, events)
            if isinstance(error, progress.DivergedError):
                world.allgather(np.zeros(1))  # everybody fails: let rank 0 write its event before anyone aborts
            world.abort(1)
    return 0


def _event_log(directory: Path, spec: RunSpec, world: World) -> EventLog:
    phone = spec.ranks[world.rank].phone if world.rank < len(spec.ranks) else f"rank {world.rank}"
    names = [layout.RANK_EVENTS_FILE] + ([layout.EVENTS_FILE] if world.rank == 0 else [])
    return EventLog(world.rank, phone, *(directory / name for name in names))


def _tell(error: Exception, events: EventLog) -> None:
    """Also on stderr, which ends up in mpirun.log: the events that are followed may be of another rank."""
    message = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
    sys.stderr.write(events.write("error", message=message) + "\n")


def _planned(graph: Graph, batch: int, spec: RunSpec, threads: int) -> tuple[Options, MemoryPlan | None]:
    """Only the core plans its memory; numpy takes what it takes."""
    options = Options(threads=threads, memory_bytes=spec.memory_bytes or None)
    return plan_memory(graph, batch, options) if spec.backend == "cpu" else (options, None)


class _Rank:
    def __init__(self, directory: Path, spec: RunSpec, threads: int, world: World, events: EventLog) -> None:
        self._directory, self._spec, self._world, self._events = directory, spec, world, events
        self._own: RankSpec = own_rank(spec, world)
        dataset = open_dataset(spec.data, world.rank, world.size, spec.seed)
        self._source = ShardSource(dataset, self._own.batch, spec.seed, self._own.rank)
        graph = models.build(spec.model, spec.data.classes, spec.data.shape)
        self._options, self._memory = _planned(graph, self._own.batch, spec, threads)
        self._loop = self._build(graph)
        self._thermometer = progress.Thermometer()

    def _build(self, graph: Graph) -> Loop:
        spec, own = self._spec, self._own
        state = State(graph, spec.seed)
        return Loop(
            executable=backend(spec.backend).compile(graph, state, own.batch, self._options),
            state=state,
            source=self._source,
            collective=collective(spec.algorithm, self._world),
            optimizer=spec.optimizer,
            weight=own.batch / spec.global_batch,
            seed=spec.seed,
            rank=own.rank,
        )

    def train(self) -> None:
        self._start()
        started = before = time.monotonic()
        loss = float("nan")
        for step, own_loss, compute_s, comm_s in self._loop.run(1, self._spec.steps):
            own = progress.RankStep(own_loss, compute_s, comm_s, self._thermometer.read())
            rows = progress.exchange(own, self._world, self._spec, step)
            now = time.monotonic()
            merged = progress.merge(rows, self._spec, now - before)
            self._events.write("step", step=step, **merged)
            loss, before = merged["loss"], now
        self._done(loss, before - started)

    def _start(self) -> None:
        """Agree that all start from the same values, and say who is slow for a reason that can be cured."""
        values = self._loop.state.values
        row = np.array([zlib.crc32(values.data), affinity.is_demoted()], np.float64)
        sums, demoted = self._world.allgather(row).T
        spec = self._spec
        for rank in spec.ranks:
            if sums[rank.rank] != sums[0]:
                raise AgentError(f"{progress.where(rank)} starts from other values than rank 0: provision it again")
        identity = process.identify(os.getpid())
        self._events.write(
            "start",
            world=self._world.size,
            model=spec.model,
            global_batch=spec.global_batch,
            parameters=len(values),
            data=spec.data.name,
            backend=spec.backend,
            threads=self._options.threads,
            memory_mb=round(self._memory.total / 1e6) if self._memory else None,
            recomputed=len(self._memory.recomputed) if self._memory else 0,
            pid=identity.pid,
            pid_started=identity.started,
        )
        for rank in spec.ranks:
            if demoted[rank.rank]:
                self._events.write("warn", message=f"Android keeps {progress.where(rank)} off its big cores")

    def _done(self, loss: float, seconds: float) -> None:
        summary: dict[str, Any] = {
            "steps": self._spec.steps,
            "loss": loss,
            "seconds": seconds,
            "images_per_s": self._spec.steps * self._spec.global_batch / seconds,
            "test_accuracy": self._test_accuracy(),
        }
        self._events.write("done", **summary)
        log.info("done: %s", json.dumps(summary))

    def _test_accuracy(self) -> float | None:
        """Every phone judges its part of the held-out samples; nobody leaves before the sum is known."""
        loop, share = self._loop, self._own.batch / self._spec.global_batch
        evaluate.combine_statistics(loop.state, share, loop.collective.allreduce)
        found = evaluate.merge(self._world.allgather(self._judge()))
        return None if found is None else found["top1"]

    def _judge(self) -> evaluate.Row:
        path = layout.local(layout.test_file(self._spec.data.name, self._world.rank, self._world.size))
        if not path.exists():
            return np.zeros(len(evaluate.FIELDS))
        from phone_agent.data.shards import open_shard

        test = open_shard(path)
        return evaluate.judge(self._loop.executable, test, range(len(test)), self._source.normaliser)
