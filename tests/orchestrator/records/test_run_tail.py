"""Reading a run from its files while another process writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.records.events import IncidentEvent
from orchestrator.records.incidents import IncidentKind, Incidents
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.records.run_tail import RunTail
from tests.orchestrator.launch.samples import event, spec


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


@pytest.fixture
def record(store: RunStore) -> RunRecord:
    return store.create(spec())


def write(store: RunStore, record: RunRecord, attempt: int, *lines: bytes) -> None:
    with store.events_file(record.run_id, attempt).open("ab") as file:
        file.write(b"".join(lines))


def kinds(tail: RunTail) -> list[str]:
    return [each.message if isinstance(each, IncidentEvent) else each.kind for each in tail.poll()]


def test_each_event_is_returned_once_and_torn_lines_when_complete(store: RunStore, record: RunRecord) -> None:
    tail, step = RunTail(store, record.run_id), event("step", 2.0, step=1)
    assert kinds(tail) == []
    write(store, record, 0, event("start", 1.0), step[:9])
    assert kinds(tail) == ["start"]
    write(store, record, 0, step[9:])
    assert kinds(tail) == ["step"]
    assert (kinds(tail), tail.progress.step, tail.progress.state) == ([], 1, "running")


def test_attempts_and_incidents_are_in_order_whenever_they_are_read(store: RunStore, record: RunRecord) -> None:
    live = RunTail(store, record.run_id)
    seen = kinds(live)
    write(store, record, 0, event("start", 1.0))
    seen += kinds(live)
    incidents = Incidents(store.incidents_file(record.run_id))
    incidents.add(IncidentKind.RESTARTING, "lost p1-02", attempt=0)
    second = store.begin_attempt(record, replace(spec(3), attempt=1))
    assert live.record.attempt == 0
    seen += kinds(live)
    write(store, record, 1, event("start", 3.0), event("step", 4.0, step=2))
    incidents.add(IncidentKind.RESUMED, "resumed", attempt=1)
    store.save(replace(second, state="done"))
    seen += kinds(live)
    assert seen == ["start", "lost p1-02", "start", "step", "resumed"]
    assert (len(live.spec.ranks), live.record.over, live.progress.state) == (3, True, "done")
    assert kinds(RunTail(store, record.run_id)) == seen


def test_a_run_between_two_attempts_is_recovering(store: RunStore, record: RunRecord) -> None:
    tail = RunTail(store, record.run_id)
    write(store, record, 0, event("start", 1.0))
    store.save(replace(record, state="recovering"))
    kinds(tail)
    assert tail.progress.state == "recovering"
    store.begin_attempt(record, replace(spec(), attempt=1))
    kinds(tail)
    assert tail.progress.state == "starting"
