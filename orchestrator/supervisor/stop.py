"""Stop runs, and learn how those stand that nobody watched."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.events import ATTEMPT_ENDS, Progress
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.supervisor.follow import NotFollowedError, follow
from orchestrator.supervisor.identity import holder
from orchestrator.supervisor.probe import end

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

_STOP_TIMEOUT_S = 60.0


def stop(store: RunStore, record: RunRecord, fleet: Fleet) -> RunRecord:
    """Ends the run on all phones, frees what they hold of it, and takes over what it said last."""
    head = next(phone for phone in fleet.phones if phone.name == record.head)
    silent: ClusterctlError | None = None
    try:
        verb = ("stop", record.run_id, "--holder", holder())
        agent.call(fleet.connection(head), *verb, timeout=_STOP_TIMEOUT_S)
        record = catch_up(store, record, fleet.connection(head))
    except (PhoneError, NotFollowedError) as error:
        silent = error
    ended = end(fleet, record.run_id, fleet.phones, forget=True)
    if all(sight.silent for sight in ended) and silent is not None:
        raise silent
    if not record.over:
        record = replace(record, state="stopped", ended=time.time())
        store.save(record)
    return record


def catch_up(store: RunStore, record: RunRecord, connection: PhoneConnection) -> RunRecord:
    """For a run whose attempt is over: reads its events to the end."""
    progress, copy = Progress(record.steps), store.events_file(record.run_id, record.attempt)
    for event in follow(record.run_id, copy, lambda: connection, _give_up, record.attempt):
        progress.update(event)
    settled = record.with_progress(progress)
    store.save(settled)
    return settled


def refresh(store: RunStore, fleet: Fleet) -> set[str]:
    """Asks the head phones about runs that were not over when last heard of; returns those nobody answers for."""
    open_runs: dict[str, list[RunRecord]] = defaultdict(list)
    for record in store.all():
        if not record.over:
            open_runs[record.head].append(record)
    heads = [phone for phone in fleet.phones if phone.name in open_runs]
    outcomes = fleet.map(lambda head: _refresh_head(store, head, open_runs[head.phone.name]), heads)
    answered = {outcome.phone.name for outcome in outcomes if outcome.ok}
    return {record.run_id for head, records in open_runs.items() if head not in answered for record in records}


def _refresh_head(store: RunStore, connection: PhoneConnection, records: list[RunRecord]) -> None:
    there = {run["id"]: run for run in agent.call(connection, "runs") if isinstance(run, dict) and "id" in run}
    for record in records:
        _refresh_run(store, connection, record, there.get(record.run_id))


def _refresh_run(store: RunStore, connection: PhoneConnection, record: RunRecord, told: dict[str, Any] | None) -> None:
    if told is None:
        store.save(replace(record, state="failed", error="the head phone knows nothing of it"))
    elif told.get("state") == "staged" and not record.attempt:
        store.save(replace(record, state="failed", error="it was never started: whoever launched it was ended"))
    elif told.get("attempt") != record.attempt:
        store.save(replace(record, state="interrupted"))  # whoever was starting it again has gone
    elif told.get("state") in ATTEMPT_ENDS:
        catch_up(store, record, connection)
    else:
        step = told.get("step")
        store.save(replace(record, state="running", step=step if isinstance(step, int) else record.step))


def _give_up(error: PhoneError) -> None:
    raise error
