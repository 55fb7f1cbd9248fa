"""Stop a run: its supervisor steps aside, whoever asks ends it on the phones."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.events import Progress
from orchestrator.records.record import Failure, RunRecord, RunStore
from orchestrator.supervisor.follow import FollowRefusedError, follow
from orchestrator.supervisor.identity import host_identity
from orchestrator.supervisor.probe import terminate
from orchestrator.supervisor.run_lock import run_lock
from phone_agent.contract.replies import Stopped

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

_STOP_TIMEOUT_S = 60.0
_HANDOVER_S = 30.0  # for the supervisor to notice; it restarts nothing from then on


def request_stop(store: RunStore, record: RunRecord, fleet: Fleet) -> RunRecord:
    """Works with a supervisor and without one. If it fails, the supervisor stops the run once its phones answer."""
    if record.over:  # but something of it may be left on a phone
        return stop(store, record, fleet)
    store.request_stop(record.run_id)
    with run_lock(store, record.run_id, _HANDOVER_S):
        return stop(store, store.read(record.run_id), fleet)


def stop(store: RunStore, record: RunRecord, fleet: Fleet) -> RunRecord:
    """End the run on all phones, free their memory, and record its last events."""
    head = next(phone for phone in fleet.phones if phone.name == record.head)
    head_error: ClusterctlError | None = None
    try:
        command = ("stop", record.run_id, "--holder", host_identity())
        agent.call(fleet.connection(head), Stopped, *command, timeout=_STOP_TIMEOUT_S)
        record = read_remaining_events(store, record, fleet.connection(head))
    except (PhoneError, FollowRefusedError) as error:
        head_error = error
    probes = terminate(fleet, record.run_id, fleet.phones, free_memory=True)
    if head_error is not None and not any(probe.answered for probe in probes):
        raise head_error
    if not record.over:
        record = replace(record, state="stopped", ended=time.time())
        store.save(record)
    return record


def abandon_runs(store: RunStore, reason: str) -> None:
    """The phones are gone: there is nothing to end on them, and no run to continue."""
    for record in store.all():
        if not record.over:
            store.save(replace(record, state="stopped", ended=time.time(), failure=Failure(reason)))


def read_remaining_events(store: RunStore, record: RunRecord, connection: PhoneConnection) -> RunRecord:
    """Follow an attempt that is over to its last event, and update the record."""
    progress, copy = Progress(record.steps), store.events_file(record.run_id, record.attempt)
    for event in follow(record.run_id, copy, lambda: connection, _do_not_retry, record.attempt):
        progress.update(event)
    record = record.with_progress(progress)
    store.save(record)
    return record


def _do_not_retry(error: PhoneError) -> None:
    raise error
