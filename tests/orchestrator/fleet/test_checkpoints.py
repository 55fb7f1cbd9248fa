"""Checkpoints from a phone: what arrives is what the run wrote, or nothing."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.fleet import PhoneConnection
from orchestrator.records.checkpoint_copies import fetch_checkpoint
from orchestrator.records.checkpoints import LARGEST, FetchError, Told, fetch, largest, newest, remove_from_phone
from orchestrator.records.events import Event, Progress
from orchestrator.records.record import RunStore
from phone_agent.contract import layout
from tests.orchestrator.fleet.servers import Server
from tests.phone_agent.phones import run_spec

CONTENT = random.Random(2).randbytes(300_001)  # noqa: S311
NAME = "checkpoint-00000020.safetensors"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


@pytest.fixture
def run(server: Server, request: pytest.FixtureRequest) -> str:
    """A run's directory on the phone, with a checkpoint in it."""
    run_id = str(request.node.name).replace("[", "-").rstrip("]")
    directory = server.home / layout.run_dir(run_id)
    directory.mkdir(parents=True)
    (directory / NAME).write_bytes(CONTENT)
    (directory / "run.json").write_text("{}")
    return run_id


def told(**changes: Any) -> Event:
    fields = {"file": NAME, "bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest(), **changes}
    return Event("checkpoint", 1.0, fields=fields)


def test_a_phone_cannot_make_a_checkpoint_larger_than_its_network(tmp_path: Path) -> None:
    lenet = run_spec((4,))
    assert 4 * 44_426 < largest(lenet, tmp_path) < 1 << 30
    assert largest(replace(lenet, model="build", model_file="gone.py"), tmp_path) == LARGEST
    store = RunStore(tmp_path)
    store.create(lenet)
    progress = Progress(1, checkpoint=told(bytes=1 << 31))

    def connect() -> PhoneConnection:
        raise AssertionError

    with pytest.raises(FetchError, match="cannot be so"):
        fetch_checkpoint(store, lenet.run_id, progress, connect)


def wanted(**changes: Any) -> Told:
    found = Told.of(told(**changes))
    assert found is not None
    return found


def test_it_arrives_whole_and_takes_the_place_of_older_ones(phone: PhoneConnection, run: str, here: Path) -> None:
    (here / "checkpoint-00000010.safetensors").write_bytes(b"old")
    path = fetch(phone, run, wanted(), here)
    assert path.read_bytes() == CONTENT
    assert list(here.iterdir()) == [path]
    assert newest(here) == path


def test_what_is_here_does_not_travel_again(phone: PhoneConnection, run: str, server: Server, here: Path) -> None:
    fetch(phone, run, wanted(), here)
    remove_from_phone(phone, run)
    assert [path.name for path in (server.home / layout.run_dir(run)).iterdir()] == ["run.json"]
    assert fetch(phone, run, wanted(), here).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "0" * 64},
        {"bytes": 1000},
        {"bytes": len(CONTENT) + 1},
    ],
)
def test_another_file_than_the_one_told_is_refused(
    phone: PhoneConnection, run: str, here: Path, changes: dict[str, Any]
) -> None:
    (here / "checkpoint-00000010.safetensors").write_bytes(b"old")
    with pytest.raises(FetchError, match="arrived damaged"):
        fetch(phone, run, wanted(**changes), here)
    assert [path.name for path in here.iterdir()] == ["checkpoint-00000010.safetensors"]


def test_why_it_is_not_there_is_told(phone: PhoneConnection, run: str, here: Path) -> None:
    with pytest.raises(FetchError, match="No such file"):
        fetch(phone, run, wanted(file="checkpoint-00000030.safetensors"), here)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"file": "../../etc/passwd"},
        {"file": "checkpoint-00000020.safetensors\n"},
        {"file": None},
        {"bytes": -1},
        {"bytes": True},
        {"bytes": 10**15},
        {"sha256": "?" * 64},
    ],
)
def test_what_no_run_would_say_is_not_asked_for(changes: dict[str, Any]) -> None:
    assert Told.of(told(**changes)) is None


def test_a_run_without_checkpoints_has_none(here: Path) -> None:
    assert newest(here) is None
