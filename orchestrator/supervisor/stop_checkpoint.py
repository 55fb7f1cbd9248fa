"""Saves the newest step of a run before the run is stopped.

The run itself writes the checkpoint if its ranks still complete steps. Otherwise a phone writes the newest step that it
holds in memory. Either way it is brought to this computer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records import checkpoints
from orchestrator.records.checkpoints import FoundCheckpoint
from orchestrator.records.events import FOLLOWER_EVENTS, Event, Progress, StepEvent
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.supervisor.follow import FollowRefusedError, follow
from orchestrator.supervisor.identity import host_identity
from orchestrator.supervisor.probe import Probe, probe_ranks, terminate
from orchestrator.supervisor.restart_policy import without_implausible_state
from orchestrator.supervisor.resume_point import holders_of_newest
from orchestrator.supervisor.run_context import connection_to
from orchestrator.supervisor.stall_diagnosis import diagnose_stall
from orchestrator.supervisor.step_timeout import StepTimeout
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import CheckpointInfo, EndRequested

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

LONGEST_WAIT_S = 120.0  # for the run to end by itself, plus a few steps
LONGEST_STEPS_S = 600.0  # for these steps
_STEPS_TO_WAIT = 4  # in progress, the last one, and time to write
_WRITE_S = 300.0  # for a phone to write its memory to a file


class NotSavedError(ClusterctlError):
    """The newest step is in the memory of phones only. It stays there."""


class _GaveUp(Exception):  # noqa: N818  (control flow, not an error)
    """Raised inside the event stream: the run does not end by itself."""


@dataclass(frozen=True)
class StopCheckpoint:
    """`report`: says what is being done."""

    store: RunStore
    record: RunRecord
    fleet: Fleet
    report: Callable[[str], None]

    def save(self) -> FoundCheckpoint | None:
        """The newest checkpoint of the run, on this computer; None if no step was completed. Nothing of the run is
        executed any more afterwards. Raises PhoneError if no phone answers."""
        self.report("stopping: saving the newest step")
        step = self._let_run_write()
        if step and (found := self._fetch()) and found.step >= step:
            return found
        step = self._write_from_memory()
        found = self._fetch()
        if step and (found is None or found.step < step):
            raise self._not_saved(step, "it could not be fetched")
        return found

    def _fetch(self) -> FoundCheckpoint | None:
        self.report("stopping: fetching the checkpoint")
        spec = self.store.spec(self.record.run_id)
        return checkpoints.find_newest(self.fleet, spec, self.store.directory(self.record.run_id)).newest

    def _not_saved(self, step: int, reason: str) -> NotSavedError:
        run_id = self.record.run_id
        return NotSavedError(
            f"{run_id}: step {step} is not saved: {reason}. Phones keep it in memory",
            remedy=f"clusterctl stop {run_id}, or with --discard to give it up",
        )

    # ------------------------------------------------------------------------------------------------ by the run

    def _let_run_write(self) -> int:
        """The last step, of which the run says that it has written a checkpoint; 0 if it did not end by itself."""
        record, command = self.record, ("request-stop", self.record.run_id, "--attempt", str(self.record.attempt))
        try:
            reply = agent.call(self._head(), EndRequested, *command, "--holder", host_identity())
            progress = self._follow_to_end() if reply.requested else None
        except (PhoneError, FollowRefusedError, _GaveUp):
            return 0
        if progress is None:
            return 0
        self.store.save(record.with_progress(progress))
        written = progress.checkpoint.step if progress.checkpoint else 0
        return written if written >= progress.step else 0

    def _follow_to_end(self) -> Progress:
        record, patience = self.record, _Patience()
        progress, copy = Progress(record.steps), self.store.events_file(record.run_id, record.attempt)
        with closing(follow(record.run_id, copy, self._head, _give_up, record.attempt)) as events:
            for event in events:
                progress.update(event)
                patience.hear(event)
                if patience.exhausted or (event.kind == "heartbeat" and (patience.probe_due and self._stalled())):
                    raise _GaveUp
        return progress

    def _stalled(self) -> bool:
        spec = self.store.spec(self.record.run_id, self.record.attempt)
        return diagnose_stall(spec, probe_ranks(self.fleet, spec)) is not None

    # --------------------------------------------------------------------------------------------------- by a phone

    def _write_from_memory(self) -> int:
        """The step that was written; 0 if a checkpoint is as new as the newest step in memory."""
        run_id = self.record.run_id
        probes = terminate(self.fleet, run_id, self.fleet.phones)
        if not any(probe.answered for probe in probes):
            raise PhoneError(f"no phone of {run_id} answers", code=ErrorCode.NO_ANSWER, remedy="clusterctl doctor")
        probes = tuple(without_implausible_state(probe, self.record) for probe in probes)
        holders = holders_of_newest(probes)
        newest = max((held.step for probe in holders for held in probe.in_memory), default=0)
        if newest <= self._newest_checkpoint_step(probes):
            return 0
        failures = []
        for probe in holders:
            self.report(f"stopping: {probe.phone.name} writes step {newest} from its memory")
            try:
                agent.call(
                    self.fleet.connection(probe.phone), CheckpointInfo, "write-checkpoint", run_id, timeout=_WRITE_S
                )
            except PhoneError as error:
                failures.append(f"{probe.phone.name} ({probe.phone.where}): {error.message}")
            else:
                return newest
        raise self._not_saved(newest, "; ".join(failures))

    def _newest_checkpoint_step(self, probes: tuple[Probe, ...]) -> int:
        local = checkpoints.newest_local(self.store.directory(self.record.run_id))
        steps = [probe.checkpoint_step for probe in probes]
        return max([layout.checkpoint_step(local) if local else 0, *steps])

    def _head(self) -> PhoneConnection:
        return connection_to(self.fleet, self.record.head)


class _Patience:
    """How long to wait for a run to end by itself."""

    def __init__(self) -> None:
        self._started, self._timeout = time.monotonic(), StepTimeout()
        self._stepped = self._live = False  # live: what is recorded on this computer has been replayed

    def hear(self, event: Event) -> None:
        self._live = self._live or event.kind == "heartbeat"
        if isinstance(event, StepEvent):
            self._stepped = True
            self._timeout.record_step(event.step_s)
        elif event.kind not in FOLLOWER_EVENTS:
            self._timeout.record_activity()

    @property
    def exhausted(self) -> bool:
        """An attempt without a step has nothing to save that is not in memory already."""
        waited_s = time.monotonic() - self._started - LONGEST_WAIT_S
        too_long = waited_s > 0 and waited_s > min(LONGEST_STEPS_S, _STEPS_TO_WAIT * self._timeout.limit_s)
        return too_long or (self._live and not self._stepped)

    @property
    def probe_due(self) -> bool:
        due = self._timeout.expired
        if due:
            self._timeout.back_off()
        return due


def _give_up(_error: PhoneError) -> None:
    raise _GaveUp
