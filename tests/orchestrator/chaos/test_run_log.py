"""Reading the files of a run while it is running: every attempt, step and incident once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from orchestrator.chaos.run_log import Incident, RunLog
from orchestrator.records.causes import Cause
from orchestrator.records.record import RunStore
from tests.orchestrator.launch.samples import spec as run_spec


def test_new_lines_are_read_once_and_torn_lines_when_complete(tmp_path: Path) -> None:
    store, spec = RunStore(tmp_path), run_spec()
    record = store.create(spec)
    now = [10.0]
    log = RunLog(store, spec.run_id, lambda: now[0])
    events = store.events_file(spec.run_id)
    line = json.dumps({"event": "step", "time": 5.0, "step": 1, "loss": 0.5}) + "\n"
    events.write_text(line + line[:20])
    log.update()
    assert [(step.number, step.attempt, step.received_at, step.reported_at) for step in log.steps] == [
        (1, 0, 10.0, 5.0)
    ]
    now[0] = 11.0
    with events.open("a") as file:
        file.write(line[20:].replace('"step": 1', '"step": 2'))
    log.update()
    assert [step.received_at for step in log.steps] == [10.0, 11.0]
    assert (log.attempt, log.last_step, log.is_training) == (0, 2, True)
    assert len(log.steps_since(10.0)) == 1
    store.begin_attempt(record, replace(spec, attempt=1, ranks=spec.ranks[:1]))
    store.incidents_file(spec.run_id).write_text(
        json.dumps(
            {
                "event": "incident",
                "time": 1.0,
                "message": "gone",
                "detected_at": 9.5,
                "incident": "restarting",
                "cause": "rank_killed",
                "phones": ["p1-01"],
                "diagnosis": "p1-01: killed",
            }
        )
        + "\n"
    )
    log.update()
    assert (log.attempt, log.is_training) == (1, False)
    assert log.incidents == [
        Incident("gone", 11.0, 9.5, {}, "restarting", Cause.RANK_KILLED, ("p1-01",), "p1-01: killed"),
    ]
    assert [len(phones) for phones in log.phones] == [len(spec.ranks), 1]


def test_a_run_that_resumes_from_another_one_continues_its_log(tmp_path: Path) -> None:
    store, first = RunStore(tmp_path), run_spec()
    second = replace(first, run_id=first.run_id[:-1] + "b")
    store.create(first)
    store.events_file(first.run_id).write_text('{"event": "step", "time": 5.0, "step": 1}\n')
    log = RunLog(store, first.run_id)
    record = store.create(second)
    log.continue_with(second.run_id)
    assert (log.attempt, log.run_attempt, log.is_training) == (1, 0, False)
    store.begin_attempt(record, replace(second, attempt=1))
    store.events_file(second.run_id, 1).write_text('{"event": "step", "time": 6.0, "step": 2}\n')
    log.update()
    assert (log.attempt, log.run_attempt, log.is_training) == (2, 1, True)
    assert [(step.attempt, step.number) for step in log.steps] == [(0, 1), (2, 2)]
