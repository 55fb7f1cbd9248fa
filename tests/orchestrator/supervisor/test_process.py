"""The supervisor process: which runs it supervises, what it survives, and when it ends. No phone is asked."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import process_lock
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.launch.context import launch_lock
from orchestrator.paths import ClusterState
from orchestrator.records.activity import ActivityFile, read_activity
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.supervisor import process as module
from orchestrator.supervisor.process import SupervisorProcess
from orchestrator.supervisor.status import read_status
from orchestrator.supervisor.systemd import supervisor_command
from tests.labs import eventually
from tests.orchestrator.launch.samples import spec

OTHER = "20260131-130000-lenet-00bb"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterState:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    state = ClusterState("rack")
    state.runs.mkdir(parents=True)
    return state


@pytest.fixture
def store(state: ClusterState, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setattr(module, "IDLE_S", 0.2)
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "RETRY_DELAYS_S", (0.01,))
    return RunStore(state.runs)


def supervise_with(monkeypatch: pytest.MonkeyPatch, supervise: Callable[[RunRecord], None]) -> None:
    """Instead of following a run on its phones."""

    class FakeSupervisor:
        def __init__(self, _launch: object, record: RunRecord, _activity: object) -> None:
            self.run = lambda: supervise(record)

    @contextmanager
    def open_run(*_: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(module, "Supervisor", FakeSupervisor)
    monkeypatch.setattr(module, "open_run", open_run)


def create(store: RunStore, run_id: str = spec().run_id, state: str = "running") -> RunRecord:
    record = replace(store.create(replace(spec(), run_id=run_id)), state=state)
    store.save(record)
    return record


def test_all_unfinished_runs_are_supervised_until_none_is_left(
    state: ClusterState, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = create(store)
    store.save(replace(create(store, OTHER.replace("bb", "cc")), state="done"))
    seen: list[str] = []

    def supervise(record: RunRecord) -> None:
        seen.append(record.run_id)
        if record.run_id == first.run_id:
            create(store, OTHER)  # a new run appears
        store.save(replace(record, state="done"))

    supervise_with(monkeypatch, supervise)
    SupervisorProcess(state).run()
    assert seen == [first.run_id, OTHER]


def test_an_error_in_one_run_is_reported_and_tried_again_and_does_not_touch_the_others(
    state: ClusterState, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, tries, other_done = create(store), 0, threading.Event()
    create(store, OTHER)

    def supervise(record: RunRecord) -> None:
        nonlocal tries
        if record.run_id == OTHER:
            store.save(replace(record, state="done"))
            other_done.set()
            return
        tries += 1
        if tries == 1:
            raise ClusterctlError("no route")
        if tries == 2:
            assert read_activity(store.directory(bad.run_id)).problem.startswith("no route; ")
            raise RuntimeError("a bug")
        assert other_done.wait(30)
        store.save(replace(record, state="done"))

    supervise_with(monkeypatch, supervise)
    SupervisorProcess(state).run()
    assert tries == 3
    assert {record.state for record in store.all()} == {"done"}


def test_a_run_that_is_being_staged_belongs_to_its_launch(
    state: ClusterState, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, seen = create(store, state="staging"), list[str]()

    def supervise(record: RunRecord) -> None:
        seen.append(record.run_id)
        store.save(replace(record, state="failed"))

    supervise_with(monkeypatch, supervise)
    process = threading.Thread(target=SupervisorProcess(state).run, daemon=True)
    with launch_lock(state):
        process.start()
        process.join(5 * module.IDLE_S)
        assert (process.is_alive(), seen) == (True, []), "the launch relies on the process, however long it takes"
    process.join(30)
    assert seen == [record.run_id], "the launch has died"


def test_a_run_recorded_while_the_process_ends_is_supervised(
    state: ClusterState, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launch found the lock held, and started no other supervisor."""
    supervise_with(monkeypatch, lambda record: store.save(replace(record, state="done")))
    unfinished = SupervisorProcess._unfinished
    monkeypatch.setattr(module, "IDLE_S", 0.0)

    def create_first(process: SupervisorProcess) -> list[str]:
        """Called after the lock was released, since the process does not even look for runs before."""
        if not store.all():
            create(store)
            monkeypatch.setattr(module, "IDLE_S", 0.2)
        return unfinished(process)

    monkeypatch.setattr(SupervisorProcess, "_unfinished", create_first)
    SupervisorProcess(state).run()
    assert [record.state for record in store.all()] == ["done"]


def test_a_full_disk_does_not_end_the_process(
    state: ClusterState, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, full = 0, OSError(28, "No space left on device")
    create(store)

    def supervise(record: RunRecord) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise full
        store.save(replace(record, state="done"))

    def write_nothing(*_: object) -> None:
        raise full

    supervise_with(monkeypatch, supervise)
    monkeypatch.setattr(module, "write_status", write_nothing)
    monkeypatch.setattr(ActivityFile, "report_problem", write_nothing)
    SupervisorProcess(state).run()
    assert [record.state for record in store.all()] == ["done"]


def test_a_damaged_record_does_not_end_the_process(
    state: ClusterState, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store, OTHER)
    (store.directory(create(store).run_id) / "record.json").write_text("{ torn")
    supervise_with(monkeypatch, lambda record: store.save(replace(record, state="done")))
    SupervisorProcess(state).run()
    assert store.read(OTHER).state == "done"


def test_a_record_that_cannot_be_read_for_a_moment_is_read_again(
    state: ClusterState, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, read, tries = create(store), RunStore.read, 0

    def read_later(self: RunStore, run_id: str) -> RunRecord:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise UsageError("too many open files")
        return read(self, run_id)

    monkeypatch.setattr(RunStore, "read", read_later)
    supervise_with(monkeypatch, lambda record: store.save(replace(record, state="done")))
    SupervisorProcess(state).run()
    assert store.read(record.run_id).state == "done"


@pytest.mark.usefixtures("store")
def test_a_launch_that_begins_while_the_process_ends_is_not_abandoned(
    state: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch found the lock held, and started no other supervisor."""
    launching = iter([False, True, False])
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    monkeypatch.setattr(module, "launch_in_progress", lambda _: next(launching, False))
    rounds = 0

    def count(_: SupervisorProcess) -> None:
        nonlocal rounds
        rounds += 1
        next(launching, None)

    monkeypatch.setattr(SupervisorProcess, "_supervise_until_idle", count)
    SupervisorProcess(state).run()
    assert rounds == 2


@pytest.mark.usefixtures("store")
def test_a_deleted_state_directory_ends_the_process(state: ClusterState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 60.0)
    deleter = threading.Timer(0.3, lambda: state.root.rename(state.root.with_name("gone")))
    deleter.start()
    started = time.monotonic()
    SupervisorProcess(state).run()
    deleter.join()
    assert time.monotonic() - started < 60.0


def test_there_is_one_process_per_cluster_and_sigterm_ends_it(state: ClusterState) -> None:
    with subprocess.Popen(supervisor_command(state)) as first:
        eventually(lambda: (status := read_status(state)) is not None and status.started > 0)
        status = read_status(state)
        assert status is not None
        assert (status.pid, status.runs) == (first.pid, ())
        assert subprocess.run(supervisor_command(state), check=False).returncode == 0, "another one is running"
        process_lock.kill_holder(state.supervisor_lock, number=signal.SIGTERM)
        assert first.wait(30) == 0
    assert read_status(state) is None
    log = state.supervisor_log.read_text()
    assert "another supervisor is running" in log
    assert "ended by a signal" in log
