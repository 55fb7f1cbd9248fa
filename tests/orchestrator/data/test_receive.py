"""A phone takes a dataset from a stream: every file checked, nothing half-done, a broken chain reported."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phone_agent.contract import layout
from phone_agent.contract.dataset_delivery import Delivery, Hop, TransferInterruptedError
from phone_agent.contract.dataset_manifest import MANIFEST_FILE, DatasetManifest, ManifestError
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import DataSpec
from phone_agent.data import locks, open_dataset, open_test
from phone_agent.data import receive as module
from phone_agent.data.receive import receive, remove, stored_files
from tests.durability import DiskLog
from tests.phone_agent.datasets import stage


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / layout.dataset_dir("dots")


@pytest.fixture
def made(tmp_path: Path) -> DatasetManifest:
    return stage(tmp_path / "dots", train=120, test=30)


def stop(phone: str, *files: str, port: int = 8022) -> Hop:
    return Hop(phone, "127.0.0.1", port, frozenset(files))


def stream(tmp_path: Path, delivery: Delivery) -> bytes:
    return delivery.line() + b"".join((tmp_path / "dots" / file.name).read_bytes() for file in delivery.files)


def take(raw: bytes) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    receive(io.BytesIO(raw), answers.append)
    return answers


def listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


ONE, TWO, TEST = "train-00000.shard", "train-00001.shard", "test-00000.shard"


def test_what_is_meant_for_this_phone_arrives(tmp_path: Path, home: Path, made: DatasetManifest) -> None:
    raw = stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TEST),)))
    assert take(raw) == [{"phone": "p1-01", "stored": 2, "error": None}]
    assert listing(home) == [MANIFEST_FILE, TEST, ONE]
    has = stored_files("dots", verify=False)
    assert has["digest"] == made.digest
    assert has["files"] == {file.name: file.sha256 for file in made.files if file.name in {ONE, TEST}}
    assert has["free_bytes"] > 0


def test_what_arrived_survives_a_power_cut(
    tmp_path: Path, home: Path, made: DatasetManifest, disk_log: DiskLog
) -> None:
    take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TEST),))))
    assert disk_log.is_durable(home / ONE)
    assert disk_log.is_durable(home / TEST)


def test_what_changed_since_is_read_again(tmp_path: Path, home: Path, made: DatasetManifest) -> None:
    take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TWO),))))
    raw = bytearray((home / ONE).read_bytes())
    raw[500] ^= 1
    (home / ONE).write_bytes(raw)
    files = stored_files("dots", verify=False)["files"]
    assert files[ONE] != made.train[0].sha256
    assert files[TWO] == made.train[1].sha256


def test_rot_that_leaves_the_time_alone_is_found_when_asked_for(
    tmp_path: Path, home: Path, made: DatasetManifest
) -> None:
    take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE),))))
    status, raw = (home / ONE).stat(), bytearray((home / ONE).read_bytes())
    raw[500] ^= 1
    (home / ONE).write_bytes(raw)
    os.utime(home / ONE, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stored_files("dots", verify=False)["files"][ONE] == made.train[0].sha256
    assert stored_files("dots", verify=True)["files"][ONE] != made.train[0].sha256


@pytest.mark.parametrize("worn_out", [{ONE}, {ONE, TWO}], ids=["one", "all"])
def test_a_file_that_cannot_be_read_is_sent_again_and_replaced(
    tmp_path: Path, home: Path, made: DatasetManifest, worn_out: set[str]
) -> None:
    raw = stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TWO),)))
    take(raw)
    for name in worn_out:
        (home / name).unlink()
        (home / name).symlink_to("/proc/self/mem")  # an input/output error for every reader, as of worn-out flash
    good = {file.name: file.sha256 for file in made.train[:2]}
    left = {name: sha256 for name, sha256 in good.items() if name not in worn_out}
    assert stored_files("dots", verify=True)["files"] == left
    assert stored_files("dots", verify=False)["files"] == left
    take(raw)
    assert stored_files("dots", verify=True)["files"] == good
    assert not (home / ONE).is_symlink()


def test_a_file_that_arrives_damaged_is_not_kept(tmp_path: Path, home: Path, made: DatasetManifest) -> None:
    raw = bytearray(stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TWO),))))
    raw[-100] ^= 1
    (answer,) = take(bytes(raw))
    assert answer["error"] == f"{TWO} arrived damaged: push again"
    assert listing(home) == [MANIFEST_FILE, ONE]
    assert not list(home.glob("*.part"))


@pytest.mark.parametrize("cut", [10, 5000, 20000])
def test_a_cut_stream_keeps_whole_files_only(tmp_path: Path, home: Path, made: DatasetManifest, cut: int) -> None:
    raw = stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TWO),)))
    (answer,) = take(raw[:-cut])
    assert answer["code"] == ErrorCode.TRANSFER_INTERRUPTED
    assert not [path for path in home.iterdir() if path.name.endswith(".part")]
    assert set(stored_files("dots", verify=True)["files"].items()) <= {(file.name, file.sha256) for file in made.files}


def test_what_a_dataset_no_longer_has_goes(tmp_path: Path, home: Path, made: DatasetManifest) -> None:
    take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TWO),))))
    (home / ".train-00002.shard.part").touch()
    smaller = replace(made, train=made.train[:1])
    take(stream(tmp_path, Delivery(smaller, (stop("p1-01"),))))
    assert listing(home) == [MANIFEST_FILE, ONE]
    assert not (home / ".train-00002.shard.part").exists()
    assert stored_files("dots", verify=False)["digest"] == smaller.digest


def test_a_full_phone_says_so_and_leaves_nothing_half_done(
    tmp_path: Path, home: Path, made: DatasetManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module._FileWriter, "_verify_and_rename", full)
    (answer,) = take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TWO),))))
    assert answer["error"] == f"{ONE} cannot be written: No space left on device"
    assert listing(home) == [MANIFEST_FILE]
    assert not list(home.glob(".*.part"))


def test_a_next_phone_that_is_not_there_is_named(tmp_path: Path, home: Path, made: DatasetManifest) -> None:
    route = (stop("p1-01", ONE), stop("p1-02", ONE, TWO, port=1), stop("p1-03", TEST))
    first, second = sorted(take(stream(tmp_path, Delivery(made, route))), key=lambda answer: str(answer["phone"]))
    assert first == {"phone": "p1-01", "stored": 1, "error": None}
    assert second["phone"] == "p1-02"
    assert "unreachable from the previous phone" in second["error"]
    assert listing(home) == [MANIFEST_FILE, ONE]


def follower(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Instead of ssh to the next phone."""
    monkeypatch.setattr(module, "SSH", ("sh", "-c", script))


def test_a_phone_that_can_keep_nothing_passes_on_what_the_next_one_lacks(
    tmp_path: Path, home: Path, made: DatasetManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower(monkeypatch, f"exec cat > {tmp_path / 'passed-on'}")
    route = (stop("p1-01", ONE), stop("p1-02", TWO))
    home.mkdir(parents=True)
    with locks.shared(home):
        first, _ = take(stream(tmp_path, Delivery(made, route)))
    assert "by a training run" in first["error"]
    assert (tmp_path / "passed-on").read_bytes() == stream(tmp_path, Delivery(made, route[1:]))


def test_a_next_phone_that_hangs_is_given_up(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower(monkeypatch, "exec sleep 1000")
    for name, value in (("STALL_TIMEOUT_S", 0.1), ("CHUNK_BYTES", 4096), ("MAX_QUEUED_CHUNKS", 2)):
        monkeypatch.setattr(module, name, value)
    made = stage(tmp_path / "dots", train=600)  # more than a pipe takes
    every = [file.name for file in made.files]
    raw = stream(tmp_path, Delivery(made, (stop("p1-01", *every), stop("p1-02", *every))))
    first, second = sorted(take(raw), key=lambda answer: str(answer["phone"]))
    assert first == {"phone": "p1-01", "stored": len(every), "error": None}
    assert second["error"] == "unreachable from the previous phone in the chain: it accepted no data for 0 s"
    assert sorted(path.name for path in home.glob("*.shard")) == every


@pytest.mark.parametrize("reply", ["", """echo '{"phone": "p1-02", "stored": 1, "error": null}'; """])
def test_a_next_phone_that_takes_all_and_does_not_end_is_given_up(
    tmp_path: Path, home: Path, made: DatasetManifest, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    follower(monkeypatch, f"cat > /dev/null; {reply}exec sleep 1000")
    for name, value in (("STALL_TIMEOUT_S", 1.0), ("MIN_BYTES_PER_S", 1 << 40)):
        monkeypatch.setattr(module, name, value)
    first, second = take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE), stop("p1-02", ONE)))))
    assert first == {"phone": "p1-01", "stored": 1, "error": None}
    error = "unreachable from the previous phone in the chain: it did not finish within 1 s of the last data"
    failure = {} if reply else {"error": error, "code": ErrorCode.TRANSFER_INTERRUPTED, "damaged": None}
    assert second == {"phone": "p1-02", "stored": 1 if reply else 0, "error": None} | failure


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_disk_without_room_for_the_list_of_files_is_told(
    tmp_path: Path, home: Path, made: DatasetManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "write_json", _full)
    (answer,) = take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE),))))
    assert answer["error"] == f"{home} is not writable: No space left on device"
    assert answer["code"] == ErrorCode.DISK_FULL


def test_what_lies_here_is_told_on_a_full_disk(
    tmp_path: Path, home: Path, made: DatasetManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE),))))
    monkeypatch.setattr(module, "write_json", _full)
    assert stored_files("dots", verify=True)["files"] == {ONE: made.train[0].sha256}


def test_what_a_run_learns_from_is_not_changed_under_it(tmp_path: Path, home: Path, made: DatasetManifest) -> None:
    raw = stream(tmp_path, Delivery(made, (stop("p1-01", ONE, TWO, TEST),)))
    take(raw)
    data = DataSpec("dots", made.samples, made.shape, len(made.class_names), replicated=True, test_samples=30)
    running, beside = open_dataset(data, seed=0), open_test(data, seed=0)
    (refused,) = take(raw)
    assert "by a training run" in refused["error"]
    with pytest.raises(AgentError, match="or run clusterctl stop"):
        remove("dots")
    del running, beside
    assert remove("dots") is True


HOSTILE = {
    "no JSON": b"hello\n",
    "no route": b'{"manifest": {}, "route": []}\n',
    "nothing": b"",
    "no end of line": b"{" * 100,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_delivery_is_refused(home: Path, what: str) -> None:
    with pytest.raises((ManifestError, TransferInterruptedError)):
        take(HOSTILE[what])
    assert not home.exists()


@pytest.mark.parametrize(
    "change",
    [{"address": "-oProxyCommand=x"}, {"port": 0}, {"files": ["../../.ssh/authorized_keys"]}, {"address": "x y"}],
)
def test_a_hostile_route_is_refused(tmp_path: Path, home: Path, made: DatasetManifest, change: dict[str, Any]) -> None:
    raw = json.loads(Delivery(made, (stop("p1-01", ONE), stop("p1-02", ONE))).line())
    raw["route"][1] |= change
    with pytest.raises(ManifestError):
        take(json.dumps(raw).encode() + b"\n")


def test_removed(tmp_path: Path, home: Path, made: DatasetManifest) -> None:
    take(stream(tmp_path, Delivery(made, (stop("p1-01", ONE),))))
    assert remove("dots") is True
    assert not home.exists()
    assert remove("dots") is False
    assert stored_files("dots", verify=True)["files"] == {}
