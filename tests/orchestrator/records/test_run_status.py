"""What is true about a run at one moment."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.records.activity import Activity
from orchestrator.records.events import Progress, parse_event
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.records.run_status import RunStatus, derive_status
from orchestrator.records.run_tail import RunTail
from tests.orchestrator.launch.samples import event, spec

RECORD = RunRecord(
    "run",
    "lenet",
    "p1-01",
    ("p1-01", "p1-02", "p1-03", "p1-04", "p1-05"),
    100,
    created=0.0,
    state="running",
    requested=("p1-01", "p1-02", "p1-03", "p1-04", "p1-05"),
    min_phones=4,
)
GONE = {"p1-04": "does not answer", "p1-05": "does not answer"}


def after_steps(count: int, step_s: float = 2.0) -> Progress:
    progress = Progress(100)
    for step in range(1, count + 1):
        found = parse_event(event("step", 10.0 + step, step=step, step_s=step_s))
        assert found is not None
        progress.update(found)
    return progress


def status(record: RunRecord, activity: Activity | None = None, *, age_s: float = 1.0, steps: int = 10) -> RunStatus:
    """`age_s`: of the last step and event."""
    progress = after_steps(steps)
    if record.state != "running":
        progress.state = record.state
    last = 1000.0 if steps else None
    return derive_status(record, progress, activity or Activity(), last, last, 1000.0 + age_s)


def test_a_run_that_trains() -> None:
    found = status(RECORD)
    assert (found.state, found.computing, found.phones, found.silent) == ("running", 5, 5, False)
    assert (found.last_step_age_s, found.eta_s) == (1.0, 179.0)
    assert (found.waiting_for, found.next_command) == ("", "")


def test_the_time_left_is_not_counted_down_while_nothing_arrives() -> None:
    assert status(RECORD, age_s=9.0).eta_s == 171.0
    found = status(RECORD, age_s=34.0)
    assert (found.silent, found.eta_s, found.last_step_age_s) == (True, None, 34.0)


def test_slow_steps_are_not_silence() -> None:
    progress = after_steps(10, step_s=60.0)
    assert not derive_status(RECORD, progress, Activity(), 1000.0, 1000.0, 1200.0).silent
    assert derive_status(RECORD, progress, Activity(), 1000.0, 1000.0, 1300.0).silent


def test_phones_that_rest_do_not_compute() -> None:
    progress = after_steps(3)
    pause = parse_event(event("pause", 20.0, reason="too hot"))
    assert pause is not None
    progress.update(pause)
    assert derive_status(RECORD, progress, Activity(), 1000.0, 1000.0, 1001.0).computing == 4


def test_a_run_that_waits_for_phones_says_for_how_many_and_what_works() -> None:
    found = status(replace(RECORD, state="interrupted"), Activity(unable=GONE))
    assert found.waiting_for == "1 phone: 3 of 5 can take part, at least 4 needed (--min-phones)"
    assert found.next_command == "clusterctl attach run --min-phones 3"
    assert (found.computing, found.eta_s) == (0, None)


def test_spares_count() -> None:
    waiting = replace(RECORD, state="recovering", spares=("p2-01",))
    assert status(waiting, Activity(unable=GONE)).waiting_for == ""


def test_without_any_phone_the_next_command_finds_the_cause() -> None:
    everything = dict.fromkeys(RECORD.requested, "does not answer")
    found = status(replace(RECORD, state="interrupted"), Activity(unable=everything))
    assert found.waiting_for.startswith("4 phones: 0 of 5 can take part")
    assert found.next_command == "clusterctl doctor"


def test_an_interrupted_run_that_nobody_supervises() -> None:
    found = status(replace(RECORD, state="interrupted"))
    assert (found.waiting_for, found.next_command) == ("its supervisor", "clusterctl attach run")


def test_a_run_that_is_over_waits_for_nothing() -> None:
    found = status(replace(RECORD, state="stopped"), Activity(unable=GONE), age_s=1e6)
    assert (found.over, found.silent, found.computing, found.waiting_for) == (True, False, 0, "")
    assert found.last_step_age_s is None


def test_a_run_without_a_step() -> None:
    found = status(replace(RECORD, state="starting"), steps=0, age_s=30.0)
    assert (found.computing, found.last_step_age_s) == (0, None)


def test_age_of_the_last_step_by_the_clock_of_this_computer(tmp_path: Path) -> None:
    """The clock of the head phone is far off, and an evaluation came 5 s after the step."""
    store = RunStore(tmp_path)
    record = store.create(spec())
    path = store.events_file(record.run_id)
    path.write_bytes(event("start", 70.0) + event("step", 80.0, step=1) + event("evaluate_progress", 85.0))
    os.utime(path, (record.created + 1000.0,) * 2)
    tail = RunTail(store, record.run_id)
    list(tail.poll())
    assert tail.status(record.created + 1007.0).last_step_age_s == pytest.approx(12.0)


def test_min_phones_can_be_changed_beside_the_record(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    record = store.create(spec())
    store.set_min_phones(record.run_id, 1)
    store.save(record)  # as its supervisor does, which has not read the change yet
    assert store.read(record.run_id).min_phones == 1
    assert [each.min_phones for each in store.all()] == [1]
