"""The driver: what it reports to the state machine, without a phone. On a lab: test_recovery_on_lab.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from orchestrator.records.causes import Cause
from orchestrator.records.events import Event
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.supervisor import supervisor as module
from orchestrator.supervisor.supervisor import Supervisor, supervisor_lock
from tests.orchestrator.launch.samples import event
from tests.orchestrator.supervisor.samples import FOUR, SPEC

if TYPE_CHECKING:
    from orchestrator.launch.context import LaunchContext

NO_ROUTE = "ssh: connect to host 10.77.2.2 port 8022: No route to host\n"


def supervise(store: RunStore, record: RunRecord, log: str = "") -> tuple[Supervisor, list[str]]:
    """Run a supervisor whose head phone has this log of mpirun. Also returns the kinds of events that it showed."""
    head = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(stdout=log))
    fleet = SimpleNamespace(phones=FOUR, connection=lambda _phone: head)
    cluster = SimpleNamespace(phone=lambda name: next(phone for phone in FOUR if phone.name == name))
    context = cast("LaunchContext", SimpleNamespace(store=store, fleet=fleet, cluster=cluster))
    shown: list[str] = []
    made = Supervisor(context, record, lambda _, event: shown.append(event.kind), lambda _: None)
    made.run()
    return made, shown


def follow_nothing_but_the_end(state: str) -> Any:
    def follow(*_: Any) -> Iterator[Event]:
        yield Event("end", 2.0, fields={"state": state})

    return follow


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


def test_a_finished_run_is_recorded(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "follow", follow_nothing_but_the_end("done"))
    done, _ = supervise(store, store.create(SPEC))
    assert (done.progress.state, done.diagnosis) == ("done", None)
    assert store.find(None).state == "done"


def test_the_error_of_an_earlier_attempt_is_not_blamed_for_one_that_never_started(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "follow", follow_nothing_but_the_end("failed"))
    first = store.create(SPEC)
    store.events_file(SPEC.run_id).write_bytes(
        event("error", 1.0, phone="p2-01", rank=2, message="sample 3 is damaged", code="data_damaged")
    )
    second = replace(store.begin_attempt(first, replace(SPEC, attempt=1)), state="failed")
    failed, shown = supervise(store, second, NO_ROUTE)
    assert failed.diagnosis is not None
    assert (failed.diagnosis.cause, failed.diagnosis.phone) == (Cause.LOGIN_FAILED, "p2-02")
    assert shown == ["error", "end"], "events of the first attempt are replayed"


def test_only_one_process_supervises(store: RunStore) -> None:
    run_id = store.create(SPEC).run_id
    with supervisor_lock(store, run_id) as first, supervisor_lock(store, run_id) as second:
        assert (first, second) == (True, False)
