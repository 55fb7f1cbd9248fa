from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.data.add import CorruptDataError, add
from orchestrator.data.store import Store
from orchestrator.errors import UsageError
from orchestrator.launch import dataset as module
from orchestrator.launch.dataset import Dataset, find_dataset, import_dataset
from phone_agent.contract.dataset_manifest import MANIFEST_FILE
from phone_agent.contract.schema import DataSpec
from tests.orchestrator.data.samples import picture
from tests.orchestrator.launch.idx import write_idx


def open_dataset(source: str, model: str = "lenet", **options: Any) -> Dataset:
    return import_dataset(find_dataset(source, model, **options))


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state"))
    return Store()


def test_folder_is_imported_once_and_found_by_name(tmp_path: Path, store: Store) -> None:
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


def test_folder_that_was_imported_with_other_options_is_used_as_it_is(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "dots"
    write_idx(path, train=50, test=10)
    other = add("other", path, size=100).stored
    assert open_dataset(str(path)).stored == other
    own = add("dots", path, size=64, on_corrupt="skip").stored
    assert open_dataset(str(path)).stored == own, "of several, the one of the folder's name"
    (path / "more").touch()
    with pytest.raises(UsageError, match="dataset 'dots' already exists"):
        open_dataset(str(path))


def test_folder_is_inspected_without_importing_it(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "dots"
    write_idx(path, train=50, test=10)
    expected = find_dataset(str(path), "lenet")
    assert (expected.stored, store.all()) == (None, [])
    added = open_dataset(str(path))
    assert expected.spec == replace(added.spec, digest="")
    assert expected.class_names == added.class_names == tuple("0123456789")
    assert find_dataset(str(path), "lenet").stored == added.stored
    (path / "more").touch()
    with pytest.raises(UsageError, match="dataset 'dots' already exists"):
        find_dataset(str(path), "lenet")


def test_unreadable_dataset_counts_as_missing(tmp_path: Path, store: Store) -> None:
    """A run whose phones have their samples continues without this copy."""
    write_idx(tmp_path / "specks", train=20, test=5)
    stored = add("specks", tmp_path / "specks").stored
    spec = find_dataset("specks", "lenet").spec
    assert module.find_stored(spec) == stored
    (store.root / "specks" / MANIFEST_FILE).write_text("{")
    assert module.find_stored(spec) is None


def test_folder_that_cannot_be_imported_fails_on_inspection(tmp_path: Path) -> None:
    for name in ("cat/a.png", "cat/b.webp", "dog/c.png"):
        picture(tmp_path / "pics" / name)
    with pytest.raises(CorruptDataError, match=r"cat/b\.webp: unsupported format") as error:
        find_dataset(str(tmp_path / "pics"), "lenet")
    assert (error.value.exit_code, error.value.remedy) == (2, "use --on-corrupt skip to leave them out")
    assert find_dataset(str(tmp_path / "pics"), "lenet", on_corrupt="skip").spec.samples == 2


def test_random_images_need_no_files() -> None:
    dataset = open_dataset("synthetic")
    assert dataset.spec == DataSpec("synthetic", 60000, (28, 28, 1), 10, replicated=True)
    assert dataset.stored is None


def test_random_images_have_the_size_of_the_network() -> None:
    assert open_dataset("synthetic", "inception_v3").spec.shape == (299, 299, 3)
    dataset = open_dataset("auto", "resnet20")
    assert (dataset.spec.name, dataset.spec.shape, dataset.spec.classes) == ("synthetic", (32, 32, 3), 10)
    assert dataset.warning is not None
    assert dataset.warning.startswith(
        "no --data given: random images (32x32). Results are meaningless; use this to measure speed only."
    )
    assert "clusterctl data add" in dataset.warning


def test_larger_images_are_cropped(tmp_path: Path) -> None:
    write_idx(tmp_path / "large", train=20, test=0, side=36)
    assert open_dataset(str(tmp_path / "large"), "lenet").spec.input_shape == (28, 28, 1)
    write_idx(tmp_path / "small", train=20, test=0, side=20)
    assert open_dataset(str(tmp_path / "small"), "lenet").spec.input_shape == (20, 20, 1)


def test_auto_without_fashion_mnist_warns_about_random_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FASHION_MNIST", tmp_path / "absent")
    dataset = open_dataset("auto")
    assert dataset.spec.name == "synthetic"
    assert dataset.warning is not None
    assert "apt-get install dataset-fashion-mnist" in dataset.warning
    with pytest.raises(UsageError, match="Fashion-MNIST is not installed at"):
        open_dataset("fashion-mnist")


def test_unknown_sources_fail(tmp_path: Path) -> None:
    for wanted, message in (
        ("nothing", "no dataset named 'nothing'"),
        (str(tmp_path / "absent"), "no such file or directory"),
        (str(tmp_path), "is not a supported dataset"),
        ("Synthetic!", "invalid dataset name"),
    ):
        with pytest.raises(UsageError, match=message):
            open_dataset(wanted)
