from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.records.events import Progress
from orchestrator.records.record import RUN_ID, RunStore
from tests.durability import DiskLog
from tests.orchestrator.launch.samples import phones, spec

OTHER = "20260131-130000-lenet-00bb"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path / "runs")
    store.create(spec())
    store.create(replace(spec(), run_id=OTHER, created=spec().created + 3600))
    return store


def test_a_created_run_can_be_found_with_its_spec(store: RunStore) -> None:
    record = store.find("20260131-12")
    assert (record.head, record.phones, record.state) == ("p1-01", ("p1-01", "p1-02", "p1-03", "p1-04"), "staging")
    assert store.spec(record.run_id) == spec()
    assert RUN_ID.fullmatch(record.run_id)


def test_a_launch_killed_while_writing_leaves_no_run(store: RunStore) -> None:
    left = store.root / ".new-1234"
    left.mkdir()
    (left / "run.json").write_text(spec().to_json())
    assert len(store.all()) == 2
    third = store.create(replace(spec(), run_id=OTHER.replace("00bb", "00cc")))
    assert sorted(path.name for path in store.root.iterdir()) == sorted(record.run_id for record in store.all())
    assert store.spec(third.run_id).run_id == third.run_id


def test_a_record_survives_a_power_cut(store: RunStore, disk_log: DiskLog) -> None:
    third = store.create(replace(spec(), run_id=OTHER.replace("00bb", "00cc")))
    store.save(replace(third, state="running"))
    store.begin_attempt(third, next_attempt(store.spec(third.run_id), phones(4)[1:], 1))
    directory = store.directory(third.run_id)
    assert disk_log.is_durable(directory / "record.json")
    assert disk_log.is_durable(directory / "attempt-1" / "run.json")
    assert disk_log.is_synced(store.root)


def test_the_newest_run_is_the_default(store: RunStore) -> None:
    assert store.find(None).run_id == OTHER


def test_an_ambiguous_prefix_lists_the_runs(store: RunStore) -> None:
    with pytest.raises(UsageError, match="matches 2 runs"):
        store.find("2026")


def test_an_unknown_run_suggests_a_similar_one(store: RunStore) -> None:
    with pytest.raises(UsageError, match=f"did you mean {OTHER}"):
        store.find("20260131-130000-lenet-00bc")


def test_without_runs_the_error_suggests_launch(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        RunStore(tmp_path / "none").find(None)
    assert caught.value.remedy == "clusterctl launch"


def test_a_damaged_record_is_skipped(store: RunStore) -> None:
    (store.directory(OTHER) / "record.json").write_text("{ torn")
    assert [record.run_id for record in store.all()] == [spec().run_id]


def test_a_final_state_is_not_changed_by_older_events(store: RunStore) -> None:
    stopped = replace(store.find(None), state="stopped")
    assert stopped.with_progress(Progress(20, step=7, state="running")).state == "stopped"
    assert stopped.with_progress(Progress(20, step=7, state="running")).step == 7


def test_a_failed_attempt_does_not_end_the_run(store: RunStore) -> None:
    created = store.find(OTHER)
    assert (created.min_phones, created.requested, created.over) == (3, created.phones, False)
    failed = created.with_progress(Progress(20, state="failed"))
    assert (failed.state, failed.over) == ("interrupted", False)


def test_a_later_attempt_is_recorded_beside_the_first(store: RunStore) -> None:
    created = store.create(replace(spec(5), run_id=OTHER.replace("00bb", "00cc")))
    first = store.spec(created.run_id)
    second = store.begin_attempt(created, next_attempt(first, phones(5)[1:], 1))
    assert (second.attempt, second.head, len(second.phones), len(second.requested)) == (1, "p1-02", 4, 5)
    assert store.find(created.run_id) == second
    assert store.spec(created.run_id, 1).attempt == 1
    assert store.spec(created.run_id).attempt == 0
