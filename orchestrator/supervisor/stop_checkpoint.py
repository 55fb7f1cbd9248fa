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
from orchestrator.supervisor.probe import Probe, probe_phones, terminate
from orchestrator.supervisor.restart_policy import without_implausible_state
from orchestrator.supervisor.resume_point import holders_of_newest
from orchestrator.supervisor.stall_diagnosis import diagnose_stall
from orchestrator.supervisor.step_timeout import StepTimeout
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import CheckpointInfo, EndRequested

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection
    from orchestrator.inventory.model import Phone

LONGEST_WAIT_S = 120.0  # for the run to end by itself, plus a few steps
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
        if not self._run_writes_it():
            self._write_from_memory()
        self.report("stopping: fetching the checkpoint")
        spec = self.store.spec(self.record.run_id)
        return checkpoints.find_newest(self.fleet, spec, self.store.directory(self.record.run_id)).newest

    # ------------------------------------------------------------------------------------------------ by the run

    def _run_writes_it(self) -> bool:
        """Whether the run has ended by itself, with a checkpoint of its last step."""
        record, command = self.record, ("request-stop", self.record.run_id, "--attempt", str(self.record.attempt))
        try:
            reply = agent.call(self._head(), EndRequested, *command, "--holder", host_identity())
            progress = self._follow_to_end() if reply.requested else None
        except (PhoneError, FollowRefusedError, _GaveUp):
            return False
        if progress is None:
            return False
        self.store.save(record.with_progress(progress))
        return progress.checkpoint is not None and progress.checkpoint.step == progress.step

    def _follow_to_end(self) -> Progress:
        record, patience = self.record, _Patience()
        progress, copy = Progress(record.steps), self.store.events_file(record.run_id, record.attempt)
        with closing(follow(record.run_id, copy, self._head, _give_up, record.attempt)) as events:
            for event in events:
                progress.update(event)
                patience.hear(event)
                if event.kind == "heartbeat" and (patience.exhausted or (patience.probe_due and self._stalled())):
                    raise _GaveUp
        return progress

    def _stalled(self) -> bool:
        spec = self.store.spec(self.record.run_id, self.record.attempt)
        phones = [self._phone(rank.phone) for rank in spec.ranks]
        return diagnose_stall(spec, probe_phones(self.fleet, self.record.run_id, phones)) is not None

    # --------------------------------------------------------------------------------------------------- by a phone

    def _write_from_memory(self) -> None:
        """Unless a checkpoint is as new."""
        run_id = self.record.run_id
        probes = terminate(self.fleet, run_id, self.fleet.phones)
        if not any(probe.answered for probe in probes):
            raise PhoneError(f"no phone of {run_id} answers", code=ErrorCode.NO_ANSWER, remedy="clusterctl doctor")
        probes = tuple(without_implausible_state(probe, self.record) for probe in probes)
        holders = holders_of_newest(probes)
        newest = max((held.step for probe in holders for held in probe.in_memory), default=0)
        if newest <= self._newest_checkpoint_step(probes):
            return
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
                return
        raise NotSavedError(
            f"{run_id}: step {newest} is not saved: {'; '.join(failures)}. Phones keep it in memory",
            remedy=f"clusterctl stop {run_id}, or with --discard to give it up",
        )

    def _newest_checkpoint_step(self, probes: tuple[Probe, ...]) -> int:
        local = checkpoints.newest_local(self.store.directory(self.record.run_id))
        steps = [probe.checkpoint_step for probe in probes]
        return max([layout.checkpoint_step(local) if local else 0, *steps])

    def _head(self) -> PhoneConnection:
        return self.fleet.connection(self._phone(self.record.head))

    def _phone(self, name: str) -> Phone:
        return next(phone for phone in self.fleet.phones if phone.name == name)


class _Patience:
    """How long to wait for a run to end by itself."""

    def __init__(self) -> None:
        self._started, self._timeout = time.monotonic(), StepTimeout()
        self._stepped = False

    def hear(self, event: Event) -> None:
        if isinstance(event, StepEvent):
            self._stepped = True
            self._timeout.record_step(event.step_s)
        elif event.kind not in FOLLOWER_EVENTS:
            self._timeout.record_activity()

    @property
    def exhausted(self) -> bool:
        """An attempt without a step has nothing to save that is not in memory already."""
        limit_s = LONGEST_WAIT_S + _STEPS_TO_WAIT * self._timeout.limit_s
        return not self._stepped or time.monotonic() - self._started > limit_s

    @property
    def probe_due(self) -> bool:
        due = self._timeout.expired
        if due:
            self._timeout.back_off()
        return due


def _give_up(_error: PhoneError) -> None:
    raise _GaveUp
