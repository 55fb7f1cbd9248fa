"""One rank of a run, from run.json to the last step. mpirun starts one on every phone."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from phone_agent.backends.opencl import watchdog
from phone_agent.comm.world import World, abort_all_on_error, open_world
from phone_agent.contract import layout
from phone_agent.contract.choices import BACKENDS
from phone_agent.contract.dataset_manifest import ManifestError
from phone_agent.contract.errors import AgentError, ErrorCode, code_of, describe
from phone_agent.contract.schema import RunSpec
from phone_agent.contract.shards import ShardError
from phone_agent.contract.startup import StartupPhase
from phone_agent.data import open_test
from phone_agent.data.sampling import Normalizer
from phone_agent.device import affinity, process
from phone_agent.job import run_directory
from phone_agent.job.startup_log import StartupLog
from phone_agent.memckpt import client
from phone_agent.memckpt.checkpointer import MemoryCheckpointer
from phone_agent.nn.plan.memory_plan import estimate_compute_s
from phone_agent.train import checkpoint, device_config, evaluate, progress
from phone_agent.train.builder import TrainerBuilder
from phone_agent.train.events import ConditionEvents, EventLog, location
from phone_agent.train.loop import SYNC_LAG, split_micro_batches
from phone_agent.train.progress import RunMetrics
from phone_agent.train.rank_checks import check_same_start, own_rank
from phone_agent.train.rank_steps import Conditions, RankStep, Request
from phone_agent.train.timeline import clock_offset

log = logging.getLogger("phone_agent")
PAUSE_POLL_S = 2.0
PHONE_CODES = {ErrorCode.MPI_FAILED, ErrorCode.OPENCL_FAILED, ErrorCode.STATE_LOST}
PHONE_ERRORS = (OSError, MemoryError, client.CheckpointServerError, ShardError, ManifestError)


def run(directory: Path, spec: RunSpec, threads: int) -> int:
    """Train. On failure write the reason to rank.log, the event files and mpirun's log, then abort all ranks."""
    logging.Formatter.converter = time.gmtime  # the host merges the logs of all phones by time
    logging.basicConfig(filename=directory / layout.RANK_LOG, level=logging.INFO, format="%(asctime)s %(message)s")
    startup = StartupLog(directory)
    startup.enter(StartupPhase.STARTING_CHECKPOINT_SERVER)
    np.seterr(all="ignore")  # divergence is reported as an error of its own
    client.stop_other_servers(run_directory.run_of(directory))
    client.ensure_server(run_directory.run_of(directory))
    startup.enter(StartupPhase.CONNECTING)
    world = open_world()
    with abort_all_on_error(world), _event_log(directory, spec, world) as events:
        watchdog.call_before_exit(
            lambda message: _report_error(AgentError(message, code=ErrorCode.OPENCL_FAILED), events, directory)
        )
        try:
            RankRun(directory, spec, threads, world, events).train()
        except Exception as error:
            log.exception("rank %d failed", world.rank)
            _report_error(error, events, directory)
            if isinstance(error, progress.DivergedError):
                world.allgather(np.zeros(1))  # barrier: rank 0 writes its event before any rank aborts
            world.abort(1)
    return 0


def _event_log(directory: Path, spec: RunSpec, world: World) -> EventLog:
    phone = spec.ranks[world.rank].phone if world.rank < len(spec.ranks) else f"rank {world.rank}"
    names = [layout.RANK_EVENTS_FILE] + ([layout.EVENTS_FILE] if world.rank == 0 else [])
    return EventLog(world.rank, phone, *(directory / name for name in names))


def _report_error(error: Exception, events: EventLog, directory: Path) -> None:
    """Also on stderr, which goes to mpirun.log: the host may follow the events of another rank."""
    if code_of(error) is ErrorCode.OPENCL_FAILED:
        device_config.record_gpu_failure(run_directory.run_of(directory), describe(error))
    fields = {"message": describe(error), "code": code_of(error), "fault": _fault(error)}
    sys.stderr.write(events.write("error", **fields) + "\n")


def _fault(error: Exception) -> str:
    """ "phone": the work may succeed on other phones, for example because they have intact copies of damaged samples.
    "work": it would fail there as well."""
    of_phone = isinstance(error, PHONE_ERRORS) or code_of(error) in PHONE_CODES
    return "phone" if of_phone else "work"


class RankRun:
    """One rank's training, with everything that happens between steps."""

    def __init__(self, directory: Path, spec: RunSpec, threads: int, world: World, events: EventLog) -> None:
        self._directory, self._spec, self._world, self._events = directory, spec, world, events
        self._own = own_rank(spec, world)
        self._metrics = RunMetrics(spec, world, events)
        self._conditions = ConditionEvents(spec.ranks, world.rank, events)
        self._run, self._last = run_directory.run_of(directory), spec.steps
        self._startup = StartupLog(directory)
        self._trainer = TrainerBuilder(
            self._run, spec, threads, world, self._report_step, self._warn, self._startup.enter, checkpointing=True
        ).build()
        checkpoint.remove_after(self._run, spec.resume.step)
        saves = world.rank in checkpoint.checkpoint_ranks([rank.switch for rank in spec.ranks])
        self._checkpoints = self._open_checkpoints() if saves else None
        self._accuracy: float | None = None
        self._end = Request.NONE  # the request that ends the attempt early

    def train(self) -> None:
        trainer, overlap = self._trainer, self._trainer.communication.overlap
        self._start()
        offset_s, offset_error_s = clock_offset(self._world)
        self._metrics.start_step()
        started = time.monotonic()
        try:
            if trainer.recovery.step:
                self._after_step(trainer.recovery.step)  # the attempt before may have been killed in the middle of it
            first = trainer.recovery.step + 1
            self._startup.enter(StartupPhase.FIRST_STEP, expected_s=self._estimate_step_s())
            for step in trainer.loop.run(first, self._spec.steps):
                if step == first:
                    self._startup.enter(StartupPhase.TRAINING)
                self._after_step(step)
                if self._ends_after(step):
                    break
            overlap.drain()
        finally:
            self._write_timeline(offset_s, offset_error_s)
        if self._last == self._spec.steps:
            self._done(time.monotonic() - started)
        else:
            self._end_early()
        trainer.close()

    # ------------------------------------------------------------------------------------------------------- start

    def _start(self) -> None:
        """Check that all ranks start from the same weights, and warn about phones that are needlessly slow."""
        self._startup.enter(StartupPhase.SYNCHRONIZING)
        compute, state = self._trainer.compute, self._trainer.compute.state
        resumed = bool(self._trainer.recovery.step)
        checksum = 0 if resumed else zlib.crc32(state.statistics.data, zlib.crc32(state.values.data))
        micro_batches = len(self._trainer.load_balancer.micro_batches(1))
        device = (BACKENDS.index(compute.device.backend), bool(compute.device.fallback_reason))
        row = np.array([checksum, affinity.is_demoted(), micro_batches, *device], np.float64)
        checksums, demoted, counts, backends, fallbacks = self._world.allgather(row).T
        check_same_start(self._spec.ranks, checksums.tolist())
        names = [BACKENDS[each] for each in sorted({int(each) for each in backends})]
        self._write_start_event(micro_batches, ", ".join(names))
        self._events.write("comm_plan", **asdict(self._trainer.communication.config))
        self._warn_about_phones(demoted, counts, fallbacks)

    def _estimate_step_s(self) -> float:
        mean_batch = -(-self._spec.global_batch // self._world.size)  # planned already, for the autotuning
        return estimate_compute_s(self._trainer.compute.graph, mean_batch)

    def _write_start_event(self, micro_batches: int, backend: str) -> None:
        spec, compute, recovery = self._spec, self._trainer.compute, self._trainer.recovery
        identity = process.identify(os.getpid())
        self._events.write(
            "start",
            world=self._world.size,
            model=spec.model,
            global_batch=spec.global_batch,
            parameters=compute.graph.parameter_count,
            data=spec.data.name,
            backend=backend,
            threads=compute.threads,
            micro_batches=micro_batches,
            memory_mb=round(compute.memory.total / 1e6) if compute.memory else None,
            recomputed=len(compute.memory.recomputed) if compute.memory else 0,
            pid=identity.pid,
            pid_started=identity.started,
            attempt=spec.attempt,
            resumed=recovery.step,
            resumed_from=recovery.source,
        )

    def _warn_about_phones(
        self, demoted: Sequence[float], micro_batches: Sequence[float], fallbacks: Sequence[float]
    ) -> None:
        spec, reason = self._spec, self._trainer.compute.device.fallback_reason
        if reason:
            self._warn(f"computes on the CPU: {reason}")
        for rank in spec.ranks:
            if demoted[rank.rank]:
                self._events.write("warning", message=f"Android keeps {location(rank)} off its big cores")
            if fallbacks[rank.rank] and rank.rank != self._own.rank:
                message = f"{location(rank)} has no working OpenCL device and computes on the CPU"
                self._events.write("warning", message=f"{message}: clusterctl doctor --limit {rank.phone}")
            largest, smallest = spec.compute.micro_batch or rank.batch, spec.compute.min_micro_batch
            requested = len(split_micro_batches(rank.batch, largest, smallest=smallest))
            if micro_batches[rank.rank] > requested:
                count = round(micro_batches[rank.rank])
                message = (
                    f"{location(rank)}: not enough memory for batch {rank.batch}: split into {count} micro-batches"
                )
                self._events.write("warning", message=f"{message}; use a smaller --batch or a larger --memory")

    def _warn(self, message: str) -> None:
        self._events.write("warning", message=f"{location(self._own)}: {message}")

    # ------------------------------------------------------------------------------------------------------- steps

    def _report_step(self, step: int, own: RankStep) -> None:
        """On the communication thread. All ranks come to the same conclusions from the same results."""
        steps = self._metrics.report(step, replace(own, request=self._read_request()))
        self._follow_request(steps.request, step + SYNC_LAG - 1)
        self._conditions.observe(steps.conditions)
        change = self._trainer.load_balancer.observe(step, steps)
        if change is not None and change.blocked:
            hint = "its images cannot be moved to other phones, because each phone has only its own shard"
            self._events.write("warning", message=f"{change.reason}; {hint} (see launch --replicate-data)")
        elif change is not None:
            self._events.write("rebalance", step=change.step, batches=change.batches, reason=change.reason)

    def _read_request(self) -> Request:
        if self._own.rank != 0:
            return Request.NONE
        if (self._directory / layout.STOP_FILE).exists():
            return Request.STOP
        if (self._directory / layout.YIELD_FILE).exists():
            return Request.YIELD
        return Request.CHECKPOINT if self._trainer.checkpoint_schedule.interval_passed else Request.NONE

    def _follow_request(self, request: Request, step: int) -> None:
        """`step`: the first one that no rank has ended yet."""
        if request in {Request.CHECKPOINT, Request.STOP}:
            self._trainer.checkpoint_schedule.add(step)
        if request in {Request.YIELD, Request.STOP} and step < self._last:
            self._last, self._end = step, request

    def _ends_after(self, step: int) -> bool:
        """The same step on all ranks: a request is known to all once its step is exchanged."""
        self._trainer.communication.overlap.wait_for_step(step + 1 - SYNC_LAG)
        return step == self._last

    def _after_step(self, step: int) -> None:
        """Pauses, checkpoints and evaluation. The latter two need the complete state after a step."""
        self._pause_if_needed(step)
        evaluating, saving = evaluate.is_due(self._spec, step), self._trainer.checkpoint_schedule.is_due(step)
        if not (evaluating or saving):
            return
        trainer, state = self._trainer, self._trainer.compute.state
        fraction = trainer.load_balancer.batches(step)[self._own.rank] / self._spec.global_batch
        trainer.communication.overlap.drain()
        progress.check_finite(state, self._world, self._spec, step)
        with evaluate.combined_statistics(state, fraction, trainer.communication.exact.allreduce):
            if saving and self._checkpoints is not None:
                self._checkpoints.save(step, state, trainer.compute.optimizer.buffers)
            if saving and evaluating:
                self._wait_until_saved()
            if evaluating:
                self._evaluate(step)
        self._metrics.start_step()

    def _wait_until_saved(self) -> None:
        """On all phones. Evaluation may fail on any phone, over a damaged sample or non-finite scores, and a rank that
        fails ends all others, even in the middle of a write."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._world.allgather(np.zeros(1))

    def _pause_if_needed(self, step: int) -> None:
        """For as long as a phone is at its limit and no other phone can compute its images."""
        overlap, balancer = self._trainer.communication.overlap, self._trainer.load_balancer
        overlap.wait_for_step(step + 1 - SYNC_LAG)
        if step == self._spec.steps or not balancer.pauses_before(step + 1):
            return
        overlap.drain()
        while balancer.must_pause(conditions := self._gather_conditions()):
            self._conditions.observe(conditions)
            time.sleep(PAUSE_POLL_S)
        self._conditions.observe(conditions)
        balancer.resume()
        self._metrics.start_step()

    def _gather_conditions(self) -> Conditions:
        return Conditions(self._world.allgather(np.array(astuple(self._trainer.monitor.condition), np.float64)))

    # -------------------------------------------------------------------------------------------------- evaluation

    def _evaluate(self, step: int) -> None:
        """Each phone evaluates its part of the held-out samples; no phone goes on before the sum is known."""
        found = evaluate.merge_metrics(self._world.allgather(self._evaluate_own(step)))
        if found is not None:
            self._accuracy = found["top1"]
            self._events.write("evaluate", step=step, **found)

    def _evaluate_own(self, step: int) -> evaluate.MetricSums:
        compute, data = self._trainer.compute, self._spec.data
        test = open_test(data, self._spec.seed, warn=self._warn)
        if test is None:
            return np.zeros(len(evaluate.FIELDS))
        samples = evaluate.own_samples(len(test), self._own.rank, len(self._spec.ranks))
        normalizer = Normalizer(compute.dataset, compute.capacity, data.input_shape)

        def report_progress(done: int) -> None:
            self._events.write("evaluate_progress", step=step, samples=done, of=len(samples))

        return evaluate.evaluate_samples(compute.executable, test, samples, normalizer, report_progress)

    # --------------------------------------------------------------------------------------------------------- end

    def _end_early(self) -> None:
        """The in-memory checkpoint stays: another attempt may resume from it."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        limit_s = self._trainer.communication.config.limit_s
        self._events.write(self._end.name.lower(), step=self._last, **self._metrics.communication(limit_s))

    def _done(self, seconds: float) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        metrics, checkpointer = self._metrics, self._trainer.recovery.checkpointer
        in_memory = checkpointer if isinstance(checkpointer, MemoryCheckpointer) else None
        summary: dict[str, Any] = {
            "steps": self._spec.steps,
            "loss": metrics.loss,
            "seconds": seconds,
            "images_per_s": metrics.images_per_s,
            "test_accuracy": self._accuracy,
            **metrics.communication(self._trainer.communication.config.limit_s),
            "memckpt_fraction": in_memory.seconds / metrics.step_s if metrics.steps and in_memory else None,
        }
        self._events.write("done", **summary)
        log.info("done: %s", json.dumps(summary))
        self._world.allgather(np.zeros(1))  # barrier: all ranks have written what a recovery might need
        if in_memory:
            in_memory.discard()

    def _write_timeline(self, offset_s: float, offset_error_s: float) -> None:
        """If the disk is full, only the timeline is lost."""
        header = {"rank": self._own.rank, "phone": self._own.phone}
        path = self._directory / layout.TIMELINE_FILE
        timeline = self._trainer.communication.timeline
        try:
            timeline.write(path, **header, offset_s=offset_s, offset_error_s=offset_error_s)
        except OSError as error:
            self._warn(f"{path.name} was not written: {error.strerror}")

    def _open_checkpoints(self) -> checkpoint.CheckpointWriter:
        compute = self._trainer.compute
        metadata = checkpoint.build_metadata(self._spec, compute.state, compute.dataset)
        return checkpoint.CheckpointWriter(self._run, compute.graph, metadata, self._events.write)
