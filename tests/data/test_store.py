"""`clusterctl data` on this computer: whole or nothing, once or again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from orchestrator.cli.app import main
from orchestrator.data import add as adding
from orchestrator.data.add import DamagedError, add
from orchestrator.data.sources.source import SourceError
from orchestrator.data.store import Store
from orchestrator.errors import ClusterctlError, UsageError
from phone_agent.data.shards import samples_per_shard
from phone_agent.data.staged import Staged
from tests.data.samples import cifar10_binary, pixels, planes


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def scraps(store: Store) -> list[str]:
    return sorted(path.name for path in store.root.iterdir() if path.name != ".lock") if store.root.exists() else []


Run = Callable[..., str]


@pytest.fixture
def clusterctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The whole command in this process: what it printed, and that it ended as expected."""
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state"))

    def run(*arguments: str, rc: int = 0) -> str:
        monkeypatch.setattr("sys.argv", ["clusterctl", "data", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert (end.value.code or 0) == rc, printed.err
        return printed.out if rc == 0 else printed.err

    return run


def test_a_dataset_is_made_of_shards_of_a_fixed_size(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phone_agent.data.shards.SHARD_BYTES", 3 * 3078)
    assert samples_per_shard((32, 32, 3)) == 3
    stored = add("cifar", cifar10_binary(tmp_path / "cifar"), store=store).stored
    manifest = stored.manifest
    assert [file.samples for file in manifest.train] == [3, 3, 3, 3, 3, 3, 2]
    assert [file.samples for file in manifest.test] == [3, 1]
    every = np.concatenate([pixels(planes(4, number)) for number in range(5)])
    images, labels = Staged(stored.directory, manifest, manifest.train).take(np.arange(20))
    np.testing.assert_array_equal(images, every)
    assert labels.tolist() == [label + batch for batch in range(5) for label in range(4)]
    np.testing.assert_allclose(manifest.mean, every.mean(axis=(0, 1, 2)) / 255)
    np.testing.assert_allclose(manifest.std, every.std(axis=(0, 1, 2)) / 255)


def test_adding_twice_changes_nothing_and_another_source_is_refused(tmp_path: Path, store: Store) -> None:
    source = cifar10_binary(tmp_path / "cifar")
    first, second = add("cifar", source, store=store), add("cifar", source, store=store)
    assert (first.fresh, second.fresh) == (True, False)
    assert first.stored == second.stored
    with pytest.raises(UsageError, match="there is a dataset called 'cifar' already") as told:
        add("cifar", cifar10_binary(tmp_path / "other"), store=store)
    assert told.value.remedy == "clusterctl data remove cifar"
    again = add("copy", source, store=store).stored
    assert again.manifest.digest == first.stored.manifest.digest, "the content names it, not its name"


def damaged_source(tmp_path: Path) -> Path:
    source = cifar10_binary(tmp_path / "cifar")
    raw = bytearray((source / "data_batch_1.bin").read_bytes())
    raw[0] = 99
    (source / "data_batch_1.bin").write_bytes(raw)
    return source


def test_damaged_records_are_refused_or_skipped(tmp_path: Path, store: Store) -> None:
    source = damaged_source(tmp_path)
    with pytest.raises(DamagedError, match=r"1 damaged record; nothing was added:\n.* 0: label 99 is of no class"):
        add("cifar", source, store=store)
    assert scraps(store) == []
    added = add("cifar", source, store=store, on_damage="skip")
    assert added.stored.manifest.samples == 19
    assert added.stored.origin["damaged"] == [str(each) for each in added.damaged]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_nothing_is_left_of_what_was_not_finished(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    written: list[Path] = []

    def fail_at_the_second(path: Path, *_: object) -> None:
        written.append(path)
        path.touch()
        if len(written) == 2:
            raise error

    monkeypatch.setattr(adding, "write_shard", fail_at_the_second)
    with pytest.raises(BaseException, match=r"^(\[Errno 28\].*)?$"):
        add("cifar", cifar10_binary(tmp_path / "cifar"), store=store)
    assert len(written) == 2
    assert scraps(store) == []


def test_a_full_disk_is_no_stack_trace(tmp_path: Path, clusterctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(adding, "write_shard", full)
    assert "No space left on device" in clusterctl("add", "cifar", str(cifar10_binary(tmp_path / "cifar")), rc=1)


def test_scraps_of_a_killed_one_are_cleared_away(tmp_path: Path, store: Store) -> None:
    (store.root / ".other.new").mkdir(parents=True)
    (store.root / ".other.removed").mkdir()
    add("cifar", cifar10_binary(tmp_path / "cifar"), store=store)
    assert scraps(store) == ["cifar"]


def test_two_at_once_are_told(tmp_path: Path, store: Store) -> None:
    with store.locked(), pytest.raises(ClusterctlError, match="another clusterctl is changing the datasets"):
        add("cifar", cifar10_binary(tmp_path / "cifar"), store=store)


@pytest.mark.parametrize("name", ["", "../x", "A", ".hidden", "synthetic", "auto", "a/b", "x" * 64])
def test_names_that_cannot_be(tmp_path: Path, store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a dataset's name"):
        add(name, tmp_path, store=store)


def test_a_source_without_samples_is_refused(tmp_path: Path, store: Store) -> None:
    source = cifar10_binary(tmp_path / "cifar", each=0)
    with pytest.raises(SourceError, match="not one image"):
        add("cifar", source, store=store)


def test_the_commands(tmp_path: Path, clusterctl: Run) -> None:
    source = str(damaged_source(tmp_path))
    assert "--on-damage skip" in clusterctl("add", "cifar", source, rc=2)
    flags = ("cifar", source, "--on-damage", "skip", "--json")
    added = json.loads(clusterctl("add", *flags))
    assert (added["samples"], added["test_samples"], added["fresh"], len(added["skipped"])) == (19, 4, True, 1)
    assert json.loads(clusterctl("add", *flags))["fresh"] is False
    assert [each["name"] for each in json.loads(clusterctl("list", "--json"))] == ["cifar"]
    assert "19" in clusterctl("list")
    assert "airplane, automobile" in clusterctl("show", "cifar")
    assert len(json.loads(clusterctl("show", "cifar", "--json"))["files"]) == 2
    assert "there are: cifar" in clusterctl("show", "nothing", rc=2)
    clusterctl("add", "x", str(tmp_path / "absent"), rc=2)
    clusterctl("add", "x", source, "--size", "1", rc=2)
    clusterctl("remove", "cifar")
    assert json.loads(clusterctl("list", "--json")) == []
    clusterctl("remove", "cifar", rc=2)
