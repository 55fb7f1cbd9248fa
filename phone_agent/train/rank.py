"""One rank of a run, from run.json to the last step. mpirun starts one on every phone."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import zlib
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from phone_agent.comm.powersgd import uncompressed_steps
from phone_agent.comm.world import World, abort_all_on_error, open_world
from phone_agent.contract import layout
from phone_agent.contract.choices import BACKENDS
from phone_agent.contract.dataset_manifest import ManifestError
from phone_agent.contract.errors import ErrorCode, code_of, describe
from phone_agent.contract.schema import RankSpec, RunSpec
from phone_agent.contract.shards import ShardError
from phone_agent.data import open_test
from phone_agent.data.sampling import Normaliser
from phone_agent.device import affinity, process
from phone_agent.device.condition import Condition
from phone_agent.job import run_directory
from phone_agent.memckpt import client
from phone_agent.memckpt.checkpointer import MemoryCheckpointer
from phone_agent.memckpt.client import stop_other_servers
from phone_agent.train import checkpoint, evaluate, progress
from phone_agent.train.builder import build
from phone_agent.train.condition_events import Watch
from phone_agent.train.events import EventLog
from phone_agent.train.loop import AGREED_AFTER, micro_batches
from phone_agent.train.progress import RankStep
from phone_agent.train.rank_checks import check_same_start, own_rank
from phone_agent.train.timeline import clock_offset

log = logging.getLogger("phone_agent")
REST_S = 2.0  # between two looks at phones that rest
OF_PHONE = (OSError, MemoryError, client.CheckpointServerError, ShardError, ManifestError)


def run(directory: Path, spec: RunSpec, threads: int) -> int:
    """Trains; on failure tells why, in this order: rank.log, the event files, mpirun's log; then ends all ranks."""
    logging.Formatter.converter = time.gmtime  # the host merges all phones' logs by time
    logging.basicConfig(filename=directory / layout.RANK_LOG, level=logging.INFO, format="%(asctime)s %(message)s")
    np.seterr(all="ignore")  # a run that diverges is told as an error of its own
    stop_other_servers(run_directory.run_of(directory))
    client.ensure_server(run_directory.run_of(directory))
    world = open_world()
    with abort_all_on_error(world), _event_log(directory, spec, world) as events:
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
    fields = {"message": describe(error), "code": code_of(error), "fault": _fault(error)}
    sys.stderr.write(events.write("error", **fields) + "\n")


def _fault(error: Exception) -> str:
    """Whose it is: what may work elsewhere is the phone's, as with samples of which others have good copies; what would
    fail there as well is the work's."""
    of_phone = isinstance(error, OF_PHONE) or code_of(error) is ErrorCode.MPI_FAILED
    return "phone" if of_phone else "work"


class Report:
    """Every step's result, exchanged between all ranks by the communication thread."""

    def __init__(self, spec: RunSpec, world: World, events: EventLog) -> None:
        self._spec, self._world, self._events = spec, world, events
        self._before = time.monotonic()
        self.loss: float | None = None
        self.steps = 0  # told here: an attempt may begin anywhere
        self._in_full = uncompressed_steps(spec.steps) if spec.communication.wire == "powersgd" else 0
        self.reduced = 0  # of them, those whose gradients travelled as they were foretold
        self.reduce_s = self.step_s = 0.0
        self.waited_s = np.zeros(world.size)  # by rank: computing, for communication

    def start(self) -> None:
        """The next step begins now."""
        self._before = time.monotonic()

    def tell(self, step: int, own: RankStep) -> list[RankStep]:
        """All ranks' results."""
        rows = progress.exchange(own, self._world, self._spec, step)
        now = time.monotonic()
        merged = progress.merge(rows, self._spec, step, now - self._before)
        self._events.write("step", step=step, **merged)
        self.loss, self._before = merged["loss"], now
        self.steps += 1
        if step > self._in_full:
            self.reduced += 1
            self.reduce_s += merged["reduce_s"]
        self.waited_s += [row.comm_s for row in rows]
        self.step_s += merged["step_s"]
        return rows

    @property
    def images_per_s(self) -> float | None:
        """Of these steps alone: what was judged, written or waited for between them does not count."""
        return self.steps * self._spec.global_batch / self.step_s if self.steps else None

    def travel(self, limit_s: float | None) -> dict[str, float | None]:
        """How well gradients travelled in these steps. `limit_s`: the least time the line allows for a step's."""
        if not self.steps:
            return {"exposed_comm_fraction": None, "line_rate_fraction": None}
        return {
            "exposed_comm_fraction": float(self.waited_s.max()) / self.step_s,
            "line_rate_fraction": self._line_rate_share(limit_s),
        }

    def _line_rate_share(self, limit_s: float | None) -> float | None:
        """None where phones step alone: then most steps send nothing."""
        if self._spec.communication.local_steps > 1 or not limit_s or not self.reduce_s:
            return None
        return limit_s / (self.reduce_s / self.reduced)


class _Rank:
    def __init__(self, directory: Path, spec: RunSpec, threads: int, world: World, events: EventLog) -> None:
        self._directory, self._spec, self._world, self._events = directory, spec, world, events
        self._own: RankSpec = own_rank(spec, world)
        self._report, self._watch = Report(spec, world, events), Watch(spec.ranks, world.rank, events)
        self._run, self._last = run_directory.run_of(directory), spec.steps
        self._training = build(self._run, spec, threads, world, self._tell, warn=self._warn, keep=True)
        saves = world.rank in checkpoint.savers([rank.switch for rank in spec.ranks])
        self._checkpoints = self._open_checkpoints() if saves else None
        self._accuracy: float | None = None

    def _warn(self, message: str) -> None:
        self._events.write("warning", message=f"{progress.where(self._own)}: {message}", names_phone=True)

    def _tell(self, step: int, own: RankStep) -> None:
        """On the communication thread. All ranks find the same in the same rows."""
        asked = self._own.rank == 0 and (self._directory / layout.YIELD_FILE).exists()
        rows = self._report.tell(step, replace(own, leave=asked))
        if rows[0].leave:
            self._last = min(self._last, step + AGREED_AFTER - 1)
        self._watch.look([row.condition for row in rows])
        share = self._training.sharing.observe(step, rows)
        if share is not None and share.stuck:
            hint = "each phone has only its share of the samples; launch --replicate-data lets others help"
            self._events.write("warning", message=f"{share.why}: but {hint}", names_phone=True)
        elif share is not None:
            self._events.write("rebalance", step=share.step, batches=share.batches, reason=share.why)

    def train(self) -> None:
        self._start()
        offset_s, offset_error_s = clock_offset(self._world)
        self._report.start()
        started = time.monotonic()
        try:
            if self._training.resumed.step:
                self._between(self._training.resumed.step)  # whoever was to do it may have been killed over it
            for step in self._training.loop.run(self._training.resumed.step + 1, self._spec.steps):
                self._between(step)
                if self._leaves_after(step):
                    break
            self._training.overlap.settle()
        finally:
            self._keep_timeline(offset_s, offset_error_s)
        self._done(time.monotonic() - started) if self._last == self._spec.steps else self._yield()
        self._training.close()

    def _leaves_after(self, step: int) -> bool:
        """All ranks after the same one: what was asked is known to all once they have told each other."""
        self._training.overlap.catch_up(step + 1 - AGREED_AFTER)
        return step == self._last

    def _keep_timeline(self, offset_s: float, offset_error_s: float) -> None:
        """A full disk costs only this."""
        whose = {"rank": self._own.rank, "phone": self._own.phone}
        path = self._directory / layout.TIMELINE_FILE
        try:
            self._training.timeline.write(path, **whose, offset_s=offset_s, offset_error_s=offset_error_s)
        except OSError as error:
            self._warn(f"{path.name} was not written: {error.strerror}")

    def _between(self, step: int) -> None:
        """What wants the whole state as it is after a step."""
        self._rest(step)
        judging, keeping = evaluate.due(self._spec, step), checkpoint.due(self._spec, step)
        if not (judging or keeping):
            return
        training = self._training
        share = training.sharing.batches(step)[self._own.rank] / self._spec.global_batch
        training.overlap.settle()
        progress.check_values(training.state, self._world, self._spec, step)
        with evaluate.combined_statistics(training.state, share, training.exact.allreduce):
            if keeping and self._checkpoints is not None:
                self._checkpoints.save(step, training.state, training.optimizer.buffers)
            if keeping and judging:
                self._until_saved()
            if judging:
                self._judge(step)
        self._report.start()

    def _until_saved(self) -> None:
        """Everywhere. Judging may fail on any phone, over a damaged sample or scores that are not numbers; and whoever
        fails ends all others, in the middle of what they write."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._world.allgather(np.zeros(1))

    def _rest(self, step: int) -> None:
        """After this step, for as long as a phone is at its limit and nobody can take its images."""
        training = self._training
        training.overlap.catch_up(step + 1 - AGREED_AFTER)
        if step == self._spec.steps or not training.sharing.rests_before(step + 1):
            return
        training.overlap.settle()
        while training.sharing.must_rest(conditions := self._conditions()):
            self._watch.look(conditions)
            time.sleep(REST_S)
        self._watch.look(conditions)
        training.sharing.rested()
        self._report.start()

    def _conditions(self) -> list[Condition]:
        own = np.array(astuple(self._training.monitor.condition), np.float64)
        return [Condition(*row) for row in self._world.allgather(own).tolist()]

    def _start(self) -> None:
        """Agree that all start from the same values, and say who is slow for a reason that can be cured."""
        training, spec = self._training, self._spec
        state = training.state
        checksum = 0 if training.resumed.step else zlib.crc32(state.statistics.data, zlib.crc32(state.values.data))
        micro = len(training.sharing.parts(1))
        own = (BACKENDS.index(training.device_config.backend), bool(training.device_config.fallback_reason))
        row = np.array([checksum, affinity.is_demoted(), micro, *own], np.float64)
        sums, demoted, parts, backends, refused = self._world.allgather(row).T
        check_same_start(spec.ranks, sums.tolist())
        identity = process.identify(os.getpid())
        self._events.write(
            "start",
            world=self._world.size,
            model=spec.model,
            global_batch=spec.global_batch,
            parameters=len(state.values),
            data=spec.data.name,
            backend=", ".join(BACKENDS[each] for each in sorted({int(each) for each in backends})),
            threads=training.threads,
            micro_batches=micro,
            memory_mb=round(training.memory.total / 1e6) if training.memory else None,
            recomputed=len(training.memory.recomputed) if training.memory else 0,
            pid=identity.pid,
            pid_started=identity.started,
            attempt=spec.attempt,
            resumed=training.resumed.step,
            resumed_from=training.resumed.source,
        )
        self._events.write("comm_plan", **asdict(training.choice))
        if training.device_config.fallback_reason:
            self._warn(f"computes on its processor: {training.device_config.fallback_reason}")
        for rank in spec.ranks:
            if demoted[rank.rank]:
                self._events.write(
                    "warning", message=f"Android keeps {progress.where(rank)} off its big cores", names_phone=True
                )
            if refused[rank.rank] and rank.rank != self._own.rank:
                message = f"{progress.where(rank)} has no OpenCL device that works, and computes on its processor"
                self._events.write(
                    "warning", message=f"{message}: clusterctl doctor --limit {rank.phone}", names_phone=True
                )
            if parts[rank.rank] > len(micro_batches(rank.batch, spec.compute.micro_batch or rank.batch)):
                count = round(parts[rank.rank])
                message = f"{progress.where(rank)} computes its {rank.batch} images in {count} parts for want of memory"
                self._events.write(
                    "warning", message=f"{message}: a smaller --batch, or a larger --memory", names_phone=True
                )

    def _yield(self) -> None:
        """Another attempt goes on from what is kept."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._events.write("yield", step=self._last, **self._report.travel(self._training.choice.limit_s))

    def _done(self, seconds: float) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        steps, step_s = self._report.steps, self._report.step_s
        keep = self._training.resumed.keep
        summary: dict[str, Any] = {
            "steps": self._spec.steps,
            "loss": self._report.loss,
            "seconds": seconds,
            "images_per_s": self._report.images_per_s,
            "test_accuracy": self._accuracy,
            **self._report.travel(self._training.choice.limit_s),
            "memckpt_fraction": keep.seconds / step_s if steps and isinstance(keep, MemoryCheckpointer) else None,
        }
        self._events.write("done", **summary)
        log.info("done: %s", json.dumps(summary))
        self._world.allgather(np.zeros(1))  # all is written that anybody might come back for
        if isinstance(keep, MemoryCheckpointer):
            keep.discard()

    def _open_checkpoints(self) -> checkpoint.Checkpoints:
        training = self._training
        about = checkpoint.describe(self._spec, training.state, training.dataset)
        return checkpoint.Checkpoints(self._run, training.graph, about, self._events.write)

    def _judge(self, step: int) -> None:
        """Every phone judges its part of the held-out samples; nobody leaves before the sum is known."""
        found = evaluate.merge(self._world.allgather(self._judged(step)))
        if found is not None:
            self._accuracy = found["top1"]
            self._events.write("evaluate", step=step, **found)

    def _judged(self, step: int) -> evaluate.Row:
        training, data = self._training, self._spec.data
        test = open_test(data, self._spec.seed, tell=self._warn)
        if test is None:
            return np.zeros(len(evaluate.FIELDS))
        part = evaluate.own_part(len(test), self._own.rank, len(self._spec.ranks))
        trained_with = Normaliser(training.dataset, training.at_once, data.input_shape)

        def tell(done: int) -> None:
            self._events.write("evaluate_progress", step=step, samples=done, of=len(part))

        return evaluate.judge(training.executable, test, part, trained_with, tell)
