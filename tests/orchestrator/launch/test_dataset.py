from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.data.add import CorruptDataError, add
from orchestrator.data.store import Store
from orchestrator.errors import UsageError
from orchestrator.launch import dataset as module
from orchestrator.launch.dataset import open_dataset
from phone_agent.contract.dataset_manifest import MANIFEST_FILE
from phone_agent.contract.schema import DataSpec
from tests.orchestrator.data.samples import picture
from tests.orchestrator.launch.idx import write_idx


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state"))
    return Store()


def test_a_folder_is_added_once_and_found_by_name(tmp_path: Path, store: Store) -> None:
    write_idx(tmp_path / "Two Words", train=50, test=10)
    dataset = open_dataset(str(tmp_path / "Two Words"), on_corrupt="skip", augment="flip")
    assert dataset.note is not None
    assert "two-words" in dataset.note
    stored = store.get("two-words")
    assert dataset.spec == DataSpec(
        "two-words", 50, (28, 28, 1), 10, test_samples=10, augment="flip", on_corrupt="skip",
        digest=stored.manifest.digest,
    )  # fmt: skip
    again = open_dataset("two-words")
    assert again.stored == stored
    assert again.note is None


def test_a_folder_that_was_added_with_other_options_is_taken_as_it_is(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "dots"
    write_idx(path, train=50, test=10)
    other = add("other", path, size=100).stored
    assert open_dataset(str(path)).stored == other
    own = add("dots", path, size=64, on_corrupt="skip").stored
    assert open_dataset(str(path)).stored == own, "of several, the one of the folder's name"
    (path / "more").touch()
    with pytest.raises(UsageError, match="dataset 'dots' already exists"):
        open_dataset(str(path))


def test_what_would_be_added_is_counted_and_left_alone(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "dots"
    write_idx(path, train=50, test=10)
    expected = open_dataset(str(path), adds=False)
    assert (expected.stored, store.all()) == (None, [])
    added = open_dataset(str(path))
    assert expected.spec == replace(added.spec, digest="")
    assert expected.class_names == added.class_names == tuple("0123456789")
    assert open_dataset(str(path), adds=False).stored == added.stored
    (path / "more").touch()
    with pytest.raises(UsageError, match="dataset 'dots' already exists"):
        open_dataset(str(path), adds=False)


def test_samples_that_cannot_be_read_here_are_not_here(tmp_path: Path, store: Store) -> None:
    """A run whose phones have theirs goes on without this computer's."""
    write_idx(tmp_path / "specks", train=20, test=5)
    stored = add("specks", tmp_path / "specks").stored
    spec = module.spec_of(stored)
    assert module.stored_as(spec) == stored
    (store.root / "specks" / MANIFEST_FILE).write_text("{")
    assert module.stored_as(spec) is None


def test_what_would_not_be_added_is_not_planned_with(tmp_path: Path) -> None:
    for name in ("cat/a.png", "cat/b.webp", "dog/c.png"):
        picture(tmp_path / "pics" / name)
    for adds in (False, True):
        with pytest.raises(CorruptDataError, match=r"cat/b\.webp: unsupported format") as told:
            open_dataset(str(tmp_path / "pics"), adds=adds)
        assert (told.value.exit_code, told.value.remedy) == (2, "use --on-corrupt skip to leave them out")
    assert open_dataset(str(tmp_path / "pics"), on_corrupt="skip", adds=False).spec.samples == 2


def test_made_up_samples_need_no_files() -> None:
    dataset = open_dataset("synthetic")
    assert dataset.spec == DataSpec("synthetic", 60000, (28, 28, 1), 10, replicated=True)
    assert dataset.stored is None


def test_images_are_made_up_in_the_size_a_network_is_made_for() -> None:
    assert open_dataset("synthetic", "inception_v3").spec.shape == (299, 299, 3)
    dataset = open_dataset("auto", "resnet20")
    assert (dataset.spec.name, dataset.spec.shape, dataset.spec.classes) == ("synthetic", (32, 32, 3), 10)
    assert dataset.note == "training on made-up images of 32x32x3: what resnet20 is made for"


def test_what_is_larger_than_a_network_was_made_for_is_cut(tmp_path: Path) -> None:
    write_idx(tmp_path / "large", train=20, test=0, side=36)
    assert open_dataset(str(tmp_path / "large"), "lenet").spec.input_shape == (28, 28, 1)
    write_idx(tmp_path / "small", train=20, test=0, side=20)
    assert open_dataset(str(tmp_path / "small"), "lenet").spec.input_shape == (20, 20, 1)


def test_without_fashion_mnist_auto_says_what_it_does_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FASHION_MNIST", tmp_path / "absent")
    dataset = open_dataset("auto")
    assert dataset.spec.name == "synthetic"
    assert dataset.note is not None
    assert "apt-get install dataset-fashion-mnist" in dataset.note
    with pytest.raises(UsageError, match="no data at"):
        open_dataset("fashion-mnist")


def test_what_is_not_there_is_bad_usage(tmp_path: Path) -> None:
    for wanted, message in (
        ("nothing", "no dataset named 'nothing'"),
        (str(tmp_path / "absent"), "no such file or directory:"),
        (str(tmp_path), "is not a supported dataset"),
        ("Synthetic!", "invalid dataset name"),
    ):
        with pytest.raises(UsageError, match=message):
            open_dataset(wanted)
    with pytest.raises(UsageError, match="no augmentation called 'blur'"):
        open_dataset("synthetic", augment="blur")
