"""Stop a run: its supervisor steps aside, whoever asks saves the newest step and ends the run on the phones."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.activity import ActivityFile
from orchestrator.records.checkpoints import FoundCheckpoint, newest_local, remove_from_phone
from orchestrator.records.record import Failure, RunRecord, RunStore
from orchestrator.supervisor.identity import host_identity
from orchestrator.supervisor.probe import terminate
from orchestrator.supervisor.run_context import connection_to
from orchestrator.supervisor.run_lock import run_lock
from orchestrator.supervisor.stop_checkpoint import StopCheckpoint
from phone_agent.contract import layout
from phone_agent.contract.replies import Stopped

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet

_STOP_TIMEOUT_S = 60.0
_HANDOVER_S = 30.0  # for the supervisor to notice; it restarts nothing from then on


class SupervisorBusyError(ClusterctlError):
    """Two processes must not act on a run at the same time."""


@dataclass(frozen=True)
class StoppedRun:
    record: RunRecord
    checkpoint: FoundCheckpoint | None  # the newest, on this computer


def request_stop(store: RunStore, record: RunRecord, fleet: Fleet, *, discard: bool = False) -> StoppedRun:
    """Works with a supervisor and without one. If it fails, the supervisor stops the run once its phones answer.

    `discard`: end the run at once, without saving the newest step.
    """
    if record.over:  # but something of it may be left on a phone
        return stop(store, record, fleet)
    store.request_stop(record.run_id, discard=discard)
    with run_lock(store, record.run_id, _HANDOVER_S) as locked:
        if not locked:
            raise SupervisorBusyError(
                f"the supervisor of {record.run_id} is busy, and stops the run as soon as it can",
                remedy=f"clusterctl attach {record.run_id}",
            )
        return stop(store, store.read(record.run_id), fleet)


def stop(store: RunStore, record: RunRecord, fleet: Fleet) -> StoppedRun:
    """Save the newest step unless it is to be discarded, end the run on all phones and free their memory."""
    if record.over or store.discard_requested(record.run_id):
        _end_at_once(record, fleet)
        checkpoint = _newest_known(store, record)
    else:
        activity = ActivityFile(store.directory(record.run_id))
        try:
            checkpoint = StopCheckpoint(store, record, fleet, activity.report).save()
        finally:
            activity.clear()
        record = store.read(record.run_id)
        terminate(fleet, record.run_id, fleet.phones, free_memory=True)
        if checkpoint is not None:
            fleet.map(lambda connection: remove_from_phone(connection, record.run_id))
    if not record.over:
        step = max(record.step, checkpoint.step if checkpoint else 0)
        record = replace(record, state="stopped", step=step, ended=time.time())
        store.save(record)
    return StoppedRun(record, checkpoint)


def _end_at_once(record: RunRecord, fleet: Fleet) -> None:
    """Raises PhoneError if no phone answers."""
    head_error: PhoneError | None = None
    try:
        command = ("stop", record.run_id, "--holder", host_identity())
        agent.call(connection_to(fleet, record.head), Stopped, *command, timeout=_STOP_TIMEOUT_S)
    except PhoneError as error:
        head_error = error
    probes = terminate(fleet, record.run_id, fleet.phones, free_memory=True)
    if head_error is not None and not any(probe.answered for probe in probes):
        raise head_error


def _newest_known(store: RunStore, record: RunRecord) -> FoundCheckpoint | None:
    local = newest_local(store.directory(record.run_id))
    return FoundCheckpoint(local, layout.checkpoint_step(local)) if local else None


def abandon_runs(store: RunStore, reason: str) -> None:
    """The phones are gone: there is nothing to end on them, and no run to continue."""
    for record in store.all():
        if not record.over:
            store.save(replace(record, state="stopped", ended=time.time(), failure=Failure(reason)))
