"""The driver: what it reports to the state machine, without a phone. On a lab: test_recovery_on_lab.py."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Cluster, Phone, Switch
from orchestrator.launch.context import launch_lock
from orchestrator.paths import ClusterState
from orchestrator.records.activity import ActivityFile
from orchestrator.records.causes import Cause
from orchestrator.records.events import EndEvent, Event, StepEvent
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.supervisor import stop as stop_module
from orchestrator.supervisor import supervisor as module
from orchestrator.supervisor.follow import FollowRefusedError
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.restart_policy import MAX_ATTEMPTS_WITHOUT_STEP
from orchestrator.supervisor.run_lock import run_lock
from orchestrator.supervisor.supervisor import Supervisor, phones_in_use
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.health.samples import SUBNET
from tests.orchestrator.launch.samples import event
from tests.orchestrator.supervisor.samples import FOUR, SPEC

if TYPE_CHECKING:
    from orchestrator.launch.context import LaunchContext

NO_ROUTE = "ssh: connect to host 10.77.2.2 port 8022: No route to host\n"


def supervise(store: RunStore, record: RunRecord, log: str = "") -> RunRecord:
    """Run a supervisor whose head phone has this log of mpirun. No phone answers anything else."""
    Supervisor(context_of(store, log=log), record, ActivityFile(store.directory(record.run_id))).run()
    return store.read(record.run_id)


def context_of(store: RunStore, *, log: str = "", phones: tuple[Phone, ...] = FOUR) -> LaunchContext:
    head = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(stdout=log))
    fleet = SimpleNamespace(phones=phones, connection=lambda _phone: head, map=lambda *_, **__: ())
    cluster = Cluster("rack", SUBNET, None, "eth0", "1gbit", (Switch("sw1", 48, phones),), store.root)
    context = SimpleNamespace(store=store, fleet=fleet, cluster=cluster, state=ClusterState("rack"))
    return cast("LaunchContext", context)


def follow_nothing_but_the_end(state: str) -> Any:
    def follow(*_: Any) -> Iterator[Event]:
        yield EndEvent(time=2.0, state=state)

    return follow


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


def test_a_finished_run_is_recorded(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "follow", follow_nothing_but_the_end("done"))
    done = supervise(store, store.create(SPEC))
    assert (done.state, done.failure) == ("done", None)


def test_the_error_of_an_earlier_attempt_is_not_blamed_for_one_that_never_started(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "follow", follow_nothing_but_the_end("failed"))
    first = replace(store.create(SPEC), max_restarts=0)
    store.events_file(SPEC.run_id).write_bytes(
        event("error", 1.0, phone="p2-01", rank=2, message="sample 3 is damaged", code="data_damaged")
    )
    failed = supervise(store, store.begin_attempt(first, replace(SPEC, attempt=1)), NO_ROUTE)
    assert failed.failure is not None
    assert (failed.state, failed.failure.cause, failed.failure.phone) == ("failed", Cause.LOGIN_FAILED, "p2-02")


@pytest.mark.parametrize("code", [ErrorCode.TIMED_OUT, ErrorCode.BAD_ANSWER])
def test_a_failed_call_while_a_phone_rejoins_does_not_end_supervision(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    def follow(*_: Any) -> Iterator[Event]:
        yield StepEvent(time=1.0, step=1, step_s=100.0)
        yield Event(time=2.0, kind="heartbeat")
        yield EndEvent(time=3.0, state="done")

    def call(*_: Any) -> None:
        raise PhoneError("no answer", code=code)

    monkeypatch.setattr(module, "follow", follow)
    monkeypatch.setattr("orchestrator.fleet.agent.call", call)
    monkeypatch.setattr(module, "RejoinMonitor", lambda *_: SimpleNamespace(poll=lambda: FOUR[3:]))
    assert supervise(store, store.create(SPEC)).state == "done"
    (incident,) = store.incidents_file(SPEC.run_id).read_text().splitlines()
    assert "p2-02 (sw2:2) cannot rejoin yet: no answer; will try again" in incident


def test_a_run_to_be_stopped_is_not_restarted(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "follow", follow_nothing_but_the_end("failed"))
    record = replace(store.create(SPEC), max_restarts=20)
    store.request_stop(SPEC.run_id)
    left = supervise(store, record, NO_ROUTE)
    assert (left.attempt, left.over, left.restarts) == (0, False, 0)


@pytest.mark.parametrize("broken", ["stage_run", "start_run", "checkpoints.remove_after", "ActivityFile.clear"])
def test_an_error_of_this_computer_does_not_end_a_run(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    failures = []

    def fail(*_: Any) -> None:
        failures.append(broken)
        if len(failures) == MAX_ATTEMPTS_WITHOUT_STEP:
            store.request_stop(SPEC.run_id)
        raise OSError(errno.ENOSPC, "No space left on device")

    def follow(*_: Any) -> Iterator[Event]:
        assert not failures, "no other attempt was started"
        for step in ("stage_run", "start_run"):
            monkeypatch.setattr(module, step, lambda *_: None)
        monkeypatch.setattr(f"{module.__name__}.{broken}", fail)
        yield EndEvent(time=2.0, state="failed")

    record = replace(store.create(SPEC), max_restarts=20)
    monkeypatch.setattr("orchestrator.supervisor.restart_policy.START_RETRY_S", 0.0)
    monkeypatch.setattr(module, "follow", follow)
    monkeypatch.setattr(module, "terminate", lambda *_, **__: tuple(map(Probe, FOUR)))
    with suppress(OSError):  # of the last `clear`
        supervise(store, record, NO_ROUTE)
    left = store.read(SPEC.run_id)
    assert len(failures) >= MAX_ATTEMPTS_WITHOUT_STEP
    assert (left.over, left.restarts) == (False, 1)


@pytest.mark.parametrize("saved", [False, True])
def test_memory_that_holds_the_only_copy_of_the_work_is_not_freed(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, *, saved: bool
) -> None:
    def follow(*_: Any) -> Iterator[Event]:
        yield StepEvent(time=1.0, step=7, step_s=1.0)
        yield EndEvent(time=2.0, state="failed")

    def terminate(*_: Any, free_memory: bool) -> tuple[Probe, ...]:
        calls.append(free_memory)
        return ()

    def save() -> None:
        if not saved:
            raise PhoneError("disk is full", code=ErrorCode.DISK_FULL)

    calls: list[bool] = []
    record = replace(store.create(SPEC), max_restarts=0)
    monkeypatch.setattr(module, "StopCheckpoint", lambda *_: SimpleNamespace(save=save))
    monkeypatch.setattr(module, "follow", follow)
    monkeypatch.setattr(module, "terminate", terminate)
    assert supervise(store, record, NO_ROUTE).state == "failed"
    assert calls == [saved]
    reported = store.incidents_file(SPEC.run_id).exists()
    assert reported is not saved


def test_a_run_that_its_launch_never_started_has_failed(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Iterator[Event]:
        yield from ()
        raise FollowRefusedError("not started", code=ErrorCode.NOT_STARTED)

    monkeypatch.setattr(module, "follow", refuse)
    failed = supervise(store, replace(store.create(SPEC), max_restarts=20))
    assert failed.failure is not None
    assert (failed.state, failed.failure.message) == ("failed", "never started: the launch was interrupted")


def test_a_run_claims_no_phone_of_another_unfinished_run(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for its phones may have its state only in their memory."""
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    context = context_of(store)
    one, two, three = (store.create(replace(SPEC, run_id=f"{SPEC.run_id[:-1]}{digit}")) for digit in "123")
    one, two = replace(one, state="interrupted", phones=("p1-01",)), replace(two, state="running", phones=("p1-02",))
    for record in (one, two, replace(three, state="done")):
        store.save(record)
    assert phones_in_use(context, one) == {"p1-02"}
    assert phones_in_use(context, two) == {"p1-01"}
    with launch_lock(context.state):
        assert phones_in_use(context, one) == {"p1-02", "p2-01", "p2-02"}, "the launch may have chosen any of them"


def test_a_phone_removed_from_the_inventory_does_not_answer(store: RunStore) -> None:
    """Neither diagnosis nor recovery needs it, even if it is the head phone."""
    record = store.create(SPEC)
    context = context_of(store, phones=FOUR[1:])
    supervisor = Supervisor(context, record, ActivityFile(store.directory(record.run_id)))
    (probe,) = supervisor._probe().probes
    assert (probe.phone.name, probe.problem) == ("p1-01", Cause.PHONE_UNREACHABLE)
    with pytest.raises(PhoneError, match="p1-01 is not in the inventory any more"):
        supervisor._head()


def test_only_one_at_a_time_acts_on_a_run(store: RunStore) -> None:
    run_id = store.create(SPEC).run_id
    with run_lock(store, run_id) as first, run_lock(store, run_id) as second:
        assert (first, second) == (True, False)


def test_a_stop_does_not_act_beside_a_busy_supervisor(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    record = store.create(SPEC)
    monkeypatch.setattr(stop_module, "_HANDOVER_S", 0.0)
    with run_lock(store, record.run_id), pytest.raises(stop_module.SupervisorBusyError):
        stop_module.request_stop(store, record, context_of(store).fleet)
    assert store.stop_requested(record.run_id), "the supervisor does it"
