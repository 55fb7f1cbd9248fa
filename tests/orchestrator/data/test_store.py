"""`clusterctl data` on this computer: whole or nothing, once or again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.cli.app import main
from orchestrator.cli.session import Session
from orchestrator.data import add as adding
from orchestrator.data.add import CorruptDataError, add, preview
from orchestrator.data.sources.source import SourceError
from orchestrator.data.store import Store, fingerprint
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.inventory.model import Phone
from phone_agent.contract.replies import DatasetRemoved
from phone_agent.contract.shards import samples_per_shard
from phone_agent.data.staged import Staged
from tests.orchestrator.data.samples import cifar10_binary, cifar10_python, picture, pixels, planes
from tests.orchestrator.launch.idx import relabel, write_idx


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
    monkeypatch.setattr("phone_agent.contract.shards.SHARD_BYTES", 3 * 3078)
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
    with pytest.raises(UsageError, match=rf"dataset 'cifar' already exists, imported from {source}$") as raised:
        add("cifar", cifar10_binary(tmp_path / "other"), store=store)
    assert raised.value.remedy == "clusterctl data remove cifar"
    with pytest.raises(UsageError, match=rf"'cifar' already exists, imported from {source} with a different --size$"):
        add("cifar", source, size=64, store=store)
    again = add("copy", source, store=store).stored
    assert again.manifest.digest == first.stored.manifest.digest, "the content names it, not its name"


def classes_of_links(tmp_path: Path) -> Path:
    """Of which one leads back to where it is."""
    for name in ("disk/cat/a.png", "disk/young/b.png", "pics/dog/own.png"):
        picture(tmp_path / name)
    for kind in ("cat", "dog"):
        (tmp_path / "pics" / kind).mkdir(exist_ok=True)
        (tmp_path / "pics" / kind / "young").symlink_to(tmp_path / "disk/young")
    (tmp_path / "pics/cat/grown").symlink_to(tmp_path / "disk/cat")
    (tmp_path / "disk/cat/round").symlink_to(tmp_path / "disk/cat")
    return tmp_path / "pics"


def change_picture(tmp_path: Path) -> None:
    picture(tmp_path / "disk/cat/a.png", color="blue")
    os.utime(tmp_path / "disk/cat/a.png", (1, 1))


def add_picture(tmp_path: Path) -> None:
    picture(tmp_path / "disk/young/c.png")


def remove_link(tmp_path: Path) -> None:
    """What it leads to is in another class as well."""
    (tmp_path / "pics/dog/young").unlink()


def turn_link(tmp_path: Path) -> None:
    (tmp_path / "pics/dog/young").unlink()
    (tmp_path / "pics/dog/young").symlink_to(tmp_path / "disk/cat")


@pytest.mark.parametrize("change", [change_picture, add_picture, remove_link, turn_link])
def test_what_changes_behind_a_link_is_seen(tmp_path: Path, store: Store, change: Callable[[Path], None]) -> None:
    source = classes_of_links(tmp_path)
    assert add("pics", source, size=16, store=store).fresh
    assert not add("pics", source, size=16, store=store).fresh
    change(tmp_path)
    with pytest.raises(UsageError, match=rf"imported from {source}; its files have changed since$"):
        add("pics", source, size=16, store=store)


def test_what_has_no_links_is_known_as_it_always_was(tmp_path: Path) -> None:
    """Or every dataset of an earlier release would count as changed."""
    for name in ("b/two", "a/one", ".hidden/three", "four"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1, 1))
    assert fingerprint(tmp_path, "256 refuse") == "bc917acc4591bef9"


def damaged_source(tmp_path: Path) -> Path:
    source = cifar10_binary(tmp_path / "cifar")
    raw = bytearray((source / "data_batch_1.bin").read_bytes())
    raw[0] = 99
    (source / "data_batch_1.bin").write_bytes(raw)
    return source


def test_damaged_records_are_refused_or_skipped(tmp_path: Path, store: Store) -> None:
    source = damaged_source(tmp_path)
    with pytest.raises(CorruptDataError, match=r"1 corrupt record; .*\n.* 0: label 99 is not a valid"):
        add("cifar", source, store=store)
    assert scraps(store) == []
    added = add("cifar", source, store=store, on_corrupt="skip")
    assert added.stored.manifest.samples == 19
    assert added.stored.origin["damaged"] == [str(each) for each in added.damaged]
    assert not add("cifar", source, store=store, on_corrupt="skip").fresh
    with pytest.raises(UsageError, match=rf"{source} with --on-corrupt skip, which left out corrupt records$"):
        add("cifar", source, store=store)


@pytest.mark.parametrize(("first", "then"), [("skip", "fail"), ("fail", "skip")])
def test_where_nothing_is_damaged_it_does_not_matter_what_would_be_done_about_it(
    tmp_path: Path, store: Store, first: str, then: str
) -> None:
    source = cifar10_binary(tmp_path / "cifar")
    added = add("cifar", source, store=store, on_corrupt=first)
    again = add("cifar", source, store=store, on_corrupt=then)
    assert (again.fresh, again.stored) == (False, added.stored)


def test_damage_that_is_known_from_names_alone_is_refused_before_anything_is_decoded(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train/cat/a.png", "train/cat/b.webp", "train/loose.jpg", "val/cat/c.png", "val/cat/d.gif"):
        picture(tmp_path / "pics" / name)
    for make in (add, preview):
        with monkeypatch.context() as patched:
            patched.setattr("orchestrator.data.sources.folder.decode", lambda *_: pytest.fail("it was decoded"))
            with pytest.raises(CorruptDataError) as raised:
                make("pics", tmp_path / "pics", store=store)
        assert [line.split(":")[0] for line in raised.value.message.splitlines()] == [
            "3 corrupt records; nothing was added", "  train/loose.jpg", "  train/cat/b.webp", "  val/cat/d.gif",
        ]  # fmt: skip
    assert scraps(store) == []
    assert preview("pics", tmp_path / "pics", on_corrupt="skip", store=store).counts() == (1, 1)
    assert len(add("pics", tmp_path / "pics", size=16, on_corrupt="skip", store=store).damaged) == 3


@pytest.mark.parametrize("make", [cifar10_binary, cifar10_python])
def test_what_would_be_refused_is_not_expected(tmp_path: Path, store: Store, make: Callable[[Path], Path]) -> None:
    source = make(tmp_path / "cifar")
    assert preview("cifar", source, store=store).counts() == (20, 4)
    next(source.glob("data_batch_4*")).unlink()
    with pytest.raises(CorruptDataError, match=r"data_batch_4.*: the file is missing"):
        preview("cifar", source, store=store)
    assert preview("cifar", source, on_corrupt="skip", store=store).counts() == (16, 4)


def test_a_damaged_label_is_not_expected(tmp_path: Path, store: Store) -> None:
    write_idx(tmp_path / "dots", train=400, test=20)
    relabel(tmp_path / "dots", "t10k", {5: 10})
    with pytest.raises(CorruptDataError, match=r"1 corrupt record; .*\n.*record 5: label 10 is not a valid class"):
        preview("dots", tmp_path / "dots", store=store)
    with pytest.raises(CorruptDataError, match="record 0: label 99 is not a valid class"):
        preview("cifar", damaged_source(tmp_path), store=store)


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
    with pytest.raises(UsageError, match="invalid dataset name"):
        add(name, tmp_path, store=store)


def test_a_source_without_samples_is_refused(tmp_path: Path, store: Store) -> None:
    source = cifar10_binary(tmp_path / "cifar", each=0)
    with pytest.raises(SourceError, match="no training image"):
        add("cifar", source, store=store)


INVENTORY = str(Path(__file__).parents[3] / "inventory.yaml")


@pytest.fixture
def phones_have(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool | None]:
    """Which phones have it; None: no phone answers there."""
    having: dict[str, bool | None] = {}

    def outcome(phone: Phone) -> Outcome[DatasetRemoved]:
        had = having.get(phone.name, True)
        if had is None:
            return Outcome(phone, Status.UNREACHABLE, 0.1, phase=Phase.TCP, error="no answer")
        having[phone.name] = False
        return Outcome(phone, Status.OK, 0.1, DatasetRemoved(removed=had))

    def fleet(session: Session) -> AbstractContextManager[SimpleNamespace]:
        def answer(*_: object, **__: object) -> Outcomes[DatasetRemoved]:
            return Outcomes(tuple(map(outcome, session.phones)))

        return nullcontext(SimpleNamespace(map=answer))

    monkeypatch.setattr(Session, "fleet", fleet)
    return having


def test_only_what_is_named_is_deleted(tmp_path: Path, clusterctl: Run, phones_have: dict[str, bool | None]) -> None:
    clusterctl("add", "cifar", str(cifar10_binary(tmp_path / "cifar")))
    phones_have["p1-02"] = False
    on_two = ("remove", "cifar", "--from-phones", "--limit", "sw1:1-2", "-i", INVENTORY)
    document = json.loads(clusterctl(*on_two, "--json"))
    assert (document["name"], document["removed_here"]) == ("cifar", False)
    reported = [(each["phone"], each["status"], each["removed"]) for each in document["phones"]]
    assert reported == [("p1-01", "ok", True), ("p1-02", "ok", False)]
    clusterctl("show", "cifar")
    clusterctl(*on_two)
    clusterctl("remove", "cifar", "--from-phones", "--limit", "sw1:7-9", "-i", INVENTORY)
    assert "both" in clusterctl("remove", "cifar", "--limit", "sw1:1-2", rc=2)
    clusterctl("show", "cifar")
    assert json.loads(clusterctl("remove", "cifar", "--json"))["removed_here"]
    assert "no dataset named 'cifar'" in clusterctl(*on_two, rc=2)


def test_remove_prints_which_phones_had_the_dataset(
    tmp_path: Path, clusterctl: Run, phones_have: dict[str, bool | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr("orchestrator.view.data.note", notes.append)
    clusterctl("add", "cifar", str(cifar10_binary(tmp_path / "cifar")))
    phones_have["p1-02"] = False
    clusterctl("remove", "cifar", "--from-phones", "--limit", "sw1:1-3", "-i", INVENTORY)
    stays = "the copy on this computer remains"
    assert notes == ["deleted cifar on sw1:1,3", "sw1:2 did not have it", stays]
    notes.clear()
    phones_have["p1-46"] = None
    failed = clusterctl("remove", "cifar", "--from-phones", "-i", INVENTORY, rc=1)
    assert "clusterctl data remove cifar --from-phones --limit @failed" in failed
    assert notes == ["deleted cifar on sw1:4-45,sw2:1-46,sw3:1-46", "sw1:1-3 did not have it", stays]
    notes.clear()
    phones_have["p1-46"] = True
    clusterctl("remove", "cifar", "--from-phones", "-i", INVENTORY)
    assert notes[0] == "deleted cifar on this computer and on sw1:46"
    notes.clear()
    phones_have["p1-01"] = True
    clusterctl("remove", "cifar", "--from-phones", "--limit", "p1-01", "-i", INVENTORY)
    assert notes == ["deleted cifar on sw1:1"]
    clusterctl("show", "cifar", rc=2)


def test_the_commands(tmp_path: Path, clusterctl: Run) -> None:
    source = str(damaged_source(tmp_path))
    assert "--on-corrupt skip" in clusterctl("add", "cifar", source, rc=2)
    flags = ("cifar", source, "--on-corrupt", "skip", "--json")
    added = json.loads(clusterctl("add", *flags))
    assert (added["samples"], added["test_samples"], added["fresh"], len(added["skipped"])) == (19, 4, True, 1)
    assert json.loads(clusterctl("add", *flags))["fresh"] is False
    assert [each["name"] for each in json.loads(clusterctl("list", "--json"))] == ["cifar"]
    assert "19" in clusterctl("list")
    assert "airplane, automobile" in clusterctl("show", "cifar")
    assert len(json.loads(clusterctl("show", "cifar", "--json"))["files"]) == 2
    assert "available: cifar" in clusterctl("show", "nothing", rc=2)
    clusterctl("add", "x", str(tmp_path / "absent"), rc=2)
    clusterctl("add", "x", source, "--size", "1", rc=2)
    clusterctl("remove", "cifar")
    assert json.loads(clusterctl("list", "--json")) == []
    clusterctl("remove", "cifar", rc=2)


def test_a_folder_around_the_right_one_makes_no_dataset(tmp_path: Path, clusterctl: Run) -> None:
    for name in ("Data/CLS-LOC/train/n01/a.png", "Data/CLS-LOC/train/n02/b.png", "Data/CLS-LOC/val/n01/c.png"):
        picture(tmp_path / name)
    reported = " ".join(clusterctl("add", "imagenet", str(tmp_path / "Data"), rc=2).split())
    assert "would be the only class" in reported
    assert json.loads(clusterctl("list", "--json")) == []
