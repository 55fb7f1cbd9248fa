"""Stop a run; update the records of runs that no process followed."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.events import ATTEMPT_ENDS, Progress
from orchestrator.records.record import Failure, RunRecord, RunStore
from orchestrator.supervisor.follow import FollowRefusedError, follow
from orchestrator.supervisor.identity import host_identity
from orchestrator.supervisor.probe import terminate

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

_STOP_TIMEOUT_S = 60.0


def stop(store: RunStore, record: RunRecord, fleet: Fleet) -> RunRecord:
    """End the run on all phones, free their memory, and record its last events."""
    head = next(phone for phone in fleet.phones if phone.name == record.head)
    head_error: ClusterctlError | None = None
    try:
        command = ("stop", record.run_id, "--holder", host_identity())
        agent.call(fleet.connection(head), *command, timeout=_STOP_TIMEOUT_S)
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


def read_remaining_events(store: RunStore, record: RunRecord, connection: PhoneConnection) -> RunRecord:
    """Follow an attempt that is over to its last event, and update the record."""
    progress, copy = Progress(record.steps), store.events_file(record.run_id, record.attempt)
    for event in follow(record.run_id, copy, lambda: connection, _do_not_retry, record.attempt):
        progress.update(event)
    record = record.with_progress(progress)
    store.save(record)
    return record


def refresh(store: RunStore, fleet: Fleet) -> set[str]:
    """Ask the head phones about runs that were not over. Returns the ids of runs whose head phone does not answer."""
    open_runs: dict[str, list[RunRecord]] = defaultdict(list)
    for record in store.all():
        if not record.over:
            open_runs[record.head].append(record)
    heads = [phone for phone in fleet.phones if phone.name in open_runs]
    outcomes = fleet.map(lambda head: _refresh_head(store, head, open_runs[head.phone.name]), heads)
    answered = {outcome.phone.name for outcome in outcomes if outcome.ok}
    return {record.run_id for head, records in open_runs.items() if head not in answered for record in records}


def _refresh_head(store: RunStore, connection: PhoneConnection, records: list[RunRecord]) -> None:
    reported = {run["id"]: run for run in agent.call(connection, "runs") if isinstance(run, dict) and "id" in run}
    for record in records:
        _refresh_run(store, connection, record, reported.get(record.run_id))


def _refresh_run(store: RunStore, connection: PhoneConnection, record: RunRecord, run: dict[str, Any] | None) -> None:
    if run is None:
        store.save(replace(record, state="failed", failure=Failure("the head phone has no files for this run")))
    elif run.get("state") == "staged" and not record.attempt:
        store.save(replace(record, state="failed", failure=Failure("never started: the launch was interrupted")))
    elif run.get("attempt") != record.attempt:
        store.save(replace(record, state="interrupted"))  # its supervisor died during a recovery
    elif run.get("state") in ATTEMPT_ENDS:
        read_remaining_events(store, record, connection)
    else:
        step = run.get("step")
        store.save(replace(record, state="running", step=step if isinstance(step, int) else record.step))


def _do_not_retry(error: PhoneError) -> None:
    raise error
