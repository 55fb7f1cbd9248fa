"""Fetching checkpoints from a phone: an intact file arrives, or none."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from orchestrator.fleet import PhoneConnection
from orchestrator.records.checkpoints import (
    MAX_BYTES,
    FetchError,
    fetch,
    fetch_last,
    find_newest,
    keep_copy,
    max_bytes,
    newest_local,
    remove_after,
    remove_from_phone,
)
from orchestrator.records.events import CheckpointEvent, Event, Progress, parse_event
from orchestrator.records.record import RunStore
from phone_agent.contract import layout, safetensors
from phone_agent.contract.replies import Checkpoints
from phone_agent.contract.schema import RunSpec
from tests.durability import DiskLog
from tests.orchestrator.fleet.servers import Server
from tests.phone_agent.phones import run_spec

RUN = "run"
NAME = "checkpoint-00000020.safetensors"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


def checkpoint(directory: Path, run_id: str = RUN, step: int = 20) -> bytes:
    """The content of a checkpoint file."""
    tensors = {"w": np.random.default_rng(2).standard_normal(75_000).astype(np.float32)}
    safetensors.write(directory / "file", tensors, {"run_id": run_id, "step": str(step)})
    return (directory / "file").read_bytes()


with tempfile.TemporaryDirectory() as scratch:
    CONTENT = checkpoint(Path(scratch))
    METADATA_ONLY = CONTENT[: 8 + int.from_bytes(CONTENT[:8], "little")] + b"not the tensors"
    OF_ANOTHER_RUN, OF_ANOTHER_STEP = checkpoint(Path(scratch), "x"), checkpoint(Path(scratch), step=19)


@pytest.fixture
def run(server: Server) -> str:
    """The directory of a run on the phone, with a checkpoint in it."""
    directory = server.home / layout.run_dir(RUN)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / NAME).write_bytes(CONTENT)
    (directory / "run.json").write_text("{}")
    return RUN


def announcement(**changes: Any) -> Event | None:
    fields = {"file": NAME, "bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest(), **changes}
    return parse_event(json.dumps({"event": "checkpoint", "time": 1.0, **fields}))


def info(**changes: Any) -> CheckpointEvent:
    found = announcement(**changes)
    assert isinstance(found, CheckpointEvent)
    return found


def spec_of(run: str) -> RunSpec:
    return replace(run_spec((4,)), run_id=run, steps=100)


def test_a_checkpoint_too_large_for_its_network_is_rejected(tmp_path: Path) -> None:
    lenet = run_spec((4,))
    assert 4 * 44_426 < max_bytes(lenet, tmp_path) < 1 << 30
    assert max_bytes(replace(lenet, model="build", model_file="gone.py"), tmp_path) == MAX_BYTES
    store = RunStore(tmp_path)
    store.create(lenet)
    connection: Any = SimpleNamespace(phone=SimpleNamespace(name="p1-01"))
    for lie in (info(bytes=1 << 31), info(file="checkpoint-99999999.safetensors")):
        with pytest.raises(FetchError, match="implausible checkpoint metadata from p1-01"):
            fetch_last(store, lenet.run_id, Progress(100, checkpoint=lie), lambda: connection)


def test_fetch_writes_the_checkpoint_and_keeps_the_one_before(phone: PhoneConnection, run: str, here: Path) -> None:
    for step in (5, 10):
        (here / layout.checkpoint_file(step)).write_bytes(b"old")
    path = fetch(phone, spec_of(run), info(), here)
    assert path.read_bytes() == CONTENT
    assert sorted(here.iterdir()) == [here / layout.checkpoint_file(10), path]
    assert newest_local(here) == path


def test_a_fetched_checkpoint_survives_a_power_cut(
    phone: PhoneConnection, run: str, here: Path, disk_log: DiskLog
) -> None:
    assert disk_log.is_durable(fetch(phone, spec_of(run), info(), here))


def test_a_checkpoint_that_is_here_already_is_not_fetched_again(
    phone: PhoneConnection, run: str, server: Server, here: Path
) -> None:
    fetch(phone, spec_of(run), info(), here)
    remove_from_phone(phone, run)
    assert [path.name for path in (server.home / layout.run_dir(run)).iterdir()] == ["run.json"]
    assert fetch(phone, spec_of(run), info(), here).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "0" * 64},
        {"bytes": 1000},
        {"bytes": len(CONTENT) + 1},
    ],
)
def test_a_file_that_differs_from_its_announcement_is_rejected(
    phone: PhoneConnection, run: str, here: Path, changes: dict[str, Any]
) -> None:
    (here / "checkpoint-00000010.safetensors").write_bytes(b"old")
    with pytest.raises(FetchError, match="arrived damaged"):
        fetch(phone, spec_of(run), info(**changes), here)
    assert [path.name for path in here.iterdir()] == ["checkpoint-00000010.safetensors"]


@pytest.mark.parametrize("content", [OF_ANOTHER_RUN, OF_ANOTHER_STEP, METADATA_ONLY, b"not a checkpoint"])
def test_a_file_that_is_no_checkpoint_of_the_run_deletes_no_older_one(
    phone: PhoneConnection, run: str, server: Server, here: Path, content: bytes
) -> None:
    (server.home / layout.run_dir(run) / NAME).write_bytes(content)
    for name in ("checkpoint-00000010.safetensors", NAME):
        (here / name).write_bytes(b"old")
    with pytest.raises(FetchError, match="is not a checkpoint of step 20"):
        fetch(phone, spec_of(run), info(bytes=len(content), sha256=hashlib.sha256(content).hexdigest()), here)
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {
        "checkpoint-00000010.safetensors": b"old",
        NAME: b"old",
    }


def test_a_phone_whose_checkpoint_does_not_arrive_is_reported_as_unread(
    phone: PhoneConnection, run: str, server: Server, here: Path
) -> None:
    """What could not be read may be intact; what arrives damaged is not."""
    silent = SimpleNamespace(phone=SimpleNamespace(name="p9-01"), error="timed out")
    reply = Checkpoints(newest=info(), damaged=())
    outcomes = SimpleNamespace(values=lambda: [(phone.phone, reply)], failures=[silent])
    fleet: Any = SimpleNamespace(map=lambda *_, **__: outcomes, connection=lambda _: phone)
    file = server.home / layout.run_dir(run) / NAME
    file.unlink()
    search = find_newest(fleet, spec_of(run), here)
    assert (search.newest, search.damaged) == (None, ())
    assert set(search.unread) == {"p9-01", phone.phone.name}
    file.write_bytes(b"damaged")
    search = find_newest(fleet, spec_of(run), here)
    assert (len(search.damaged), set(search.unread)) == (1, {"p9-01"})


def test_a_missing_file_is_reported(phone: PhoneConnection, run: str, here: Path) -> None:
    with pytest.raises(FetchError, match="No such file"):
        fetch(phone, spec_of(run), info(file="checkpoint-00000030.safetensors"), here)
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
def test_implausible_metadata_is_rejected(changes: dict[str, Any]) -> None:
    assert announcement(**changes) is None


def test_a_resumed_run_keeps_the_checkpoint_of_its_parent(here: Path, tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    (parent / NAME).write_bytes(CONTENT)
    kept = keep_copy(parent / NAME, here)
    shutil.rmtree(parent)
    assert (newest_local(here), kept.read_bytes()) == (kept, CONTENT)


def test_checkpoints_after_the_step_resumed_from_are_removed(here: Path) -> None:
    for step in (10, 20, 30):
        (here / layout.checkpoint_file(step)).touch()
    remove_after(here, 20)
    assert sorted(map(layout.checkpoint_step, here.iterdir())) == [10, 20]


def test_a_run_without_checkpoints_has_no_newest_one(here: Path) -> None:
    assert newest_local(here) is None
