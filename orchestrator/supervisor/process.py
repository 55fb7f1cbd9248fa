"""The supervisor process of a cluster: supervises all its unfinished runs, each in a thread, until none is left."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator import process_lock
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.launch.context import launch_in_progress
from orchestrator.records.activity import ActivityFile
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.supervisor.run_context import open_run
from orchestrator.supervisor.run_lock import run_lock
from orchestrator.supervisor.status import SupervisorStatus, code_version, write_status
from orchestrator.supervisor.stop import stop
from orchestrator.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from orchestrator.paths import ClusterState
    from orchestrator.supervisor.systemd import Unit

log = logging.getLogger(__name__)

IDLE_S = 30.0  # without a run to supervise and without a launch, before the process ends
POLL_S = 0.5  # for new runs
HEARTBEAT_S = 5.0
RETRY_DELAYS_S = (2.0, 5.0, 15.0, 60.0)  # before the supervision of a run that failed is tried again
STOP_GRACE_S = 10.0  # for the process that requested a stop to carry it out


class SupervisorProcess:
    def __init__(self, state: ClusterState, unit: Unit | None = None) -> None:
        """`unit`: the systemd unit that starts this process, if any."""
        self._state, self._store, self._unit = state, RunStore(state.runs), unit
        self._threads: dict[str, threading.Thread] = {}
        self._finished_runs: set[str] = set()  # need not be read again
        self._unreadable_runs: set[str] = set()
        self._started, self._beat_at = time.time(), 0.0
        self._reported: tuple[str, ...] = ()  # runs in the status file

    def run(self) -> None:
        """Return when nothing is left to supervise. Raises LockHeldError if another process does it."""
        while True:
            lock = process_lock.acquire(self._state.supervisor_lock)
            try:
                self._supervise_until_idle()
                self._set_enabled(enabled=False)
            finally:
                os.close(lock)
            # A launch that found the lock held relies on this process.
            if not self._unfinished() and not launch_in_progress(self._state):
                return
            self._set_enabled(enabled=True)

    def _set_enabled(self, *, enabled: bool) -> None:
        """Whether a boot of this computer starts the process."""
        if self._unit is not None:
            try:
                self._unit.enable() if enabled else self._unit.disable()
            except ClusterctlError as error:
                log.warning("%s", error.message)

    def _supervise_until_idle(self) -> None:
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < IDLE_S and self._state.root.is_dir():
            for run_id in self._unfinished():
                self._supervise(run_id)
            self._threads = {run_id: thread for run_id, thread in self._threads.items() if thread.is_alive()}
            if self._threads or launch_in_progress(self._state):
                idle_since = time.monotonic()
            self._write_status()
            time.sleep(POLL_S)

    def _unfinished(self) -> list[str]:
        """Runs to supervise. A run that is being staged belongs to its launch, if that is alive."""
        records = self._read_records()
        self._finished_runs.update(record.run_id for record in records if record.over)
        unfinished = [record for record in records if not record.over]
        return [each.run_id for each in unfinished if each.state != "staging" or not launch_in_progress(self._state)]

    def _read_records(self) -> list[RunRecord]:
        """A record that cannot be read is read again next time: the host may have been short of file descriptors."""
        records, unreadable = [], set()
        for run_id in self._store.run_ids():
            if run_id not in self._finished_runs:
                try:
                    records.append(self._store.read(run_id))
                except UsageError:
                    unreadable.add(run_id)
        for run_id in unreadable - self._unreadable_runs:
            log.warning("%s: its record cannot be read", run_id)
        self._unreadable_runs = unreadable
        return records

    def _supervise(self, run_id: str) -> None:
        if run_id not in self._threads:
            log.info("%s: supervising", run_id)
            supervision = RunSupervision(self._state, run_id)
            self._threads[run_id] = threading.Thread(target=supervision.run, name=run_id, daemon=True)
            self._threads[run_id].start()

    def _write_status(self) -> None:
        runs, now = tuple(sorted(self._threads)), time.time()
        if runs != self._reported or now - self._beat_at > HEARTBEAT_S:
            self._reported, self._beat_at = runs, now
            status = SupervisorStatus(os.getpid(), code_version(), self._started, now, runs)
            with suppress(OSError):  # a full disk must not end the supervision
                write_status(self._state, status)


class RunSupervision:
    """Supervises one run until it is over, and survives every error on the way."""

    def __init__(self, state: ClusterState, run_id: str) -> None:
        self._state, self._store, self._run_id = state, RunStore(state.runs), run_id
        self._activity = ActivityFile(self._store.directory(run_id))

    def run(self) -> None:
        failures, step = 0, 0
        while not (record := self._store.read(self._run_id)).over:
            failures, step = (0 if record.step > step else failures), record.step
            try:
                self._supervise(record)
            except (ClusterctlError, OSError) as error:
                self._report(str(error))
            except Exception as error:
                log.exception("%s: unexpected error", self._run_id)
                self._report(f"{type(error).__name__}: {error}")
            else:
                failures = -1
            time.sleep(POLL_S if failures < 0 else RETRY_DELAYS_S[min(failures, len(RETRY_DELAYS_S) - 1)])
            failures += 1
        log.info("%s: %s at step %d", self._run_id, record.state, record.step)

    def _supervise(self, record: RunRecord) -> None:
        with run_lock(self._store, self._run_id) as locked:
            if not locked:  # the run is being stopped
                return
            with open_run(self._state, record, self._activity.report_phase) as launch:
                if self._store.stop_requested(self._run_id):
                    stop(self._store, record, launch.fleet)
                else:
                    Supervisor(launch, record, self._activity).run()
        self._leave_stop_to_requester()

    def _leave_stop_to_requester(self) -> None:
        deadline = time.monotonic() + STOP_GRACE_S
        while self._store.stop_requested(self._run_id) and time.monotonic() < deadline:
            if self._store.read(self._run_id).over:
                return
            time.sleep(POLL_S)

    def _report(self, problem: str) -> None:
        log.warning("%s: %s; trying again", self._run_id, problem)
        with suppress(OSError):  # a full disk may be the problem
            self._activity.report_problem(f"{problem}; the supervisor tries again")
