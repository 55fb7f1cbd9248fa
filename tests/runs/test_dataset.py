from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.runs import dataset as module
from orchestrator.runs.dataset import open_dataset
from phone_agent.data.shards import open_shard
from phone_agent.schema import DataSpec
from tests.runs.idx import write_idx


def test_a_folder_of_idx_files_becomes_one_shard_a_phone(tmp_path: Path) -> None:
    write_idx(tmp_path / "Two Words", train=50, test=10)
    dataset = open_dataset(str(tmp_path / "Two Words"))
    assert (dataset.spec.name, dataset.spec.samples, dataset.spec.shape) == ("two-words", 50, (28, 28, 1))
    parcels = dataset.write_parcels(4, tmp_path)
    assert [[len(open_shard(parcel.path)) for parcel in part] for part in parcels] == [
        [13, 3],
        [13, 3],
        [12, 2],
        [12, 2],
    ]
    assert [str(parcel.remote) for parcel in parcels[3]] == [
        ".clusterctl/data/two-words/0003-of-0004.shard",
        ".clusterctl/data/two-words/test-0003-of-0004.shard",
    ]
    assert len({parcel.sha256 for part in parcels for parcel in part}) == 8


def test_too_few_held_out_images_for_all_phones_are_left_out(tmp_path: Path) -> None:
    write_idx(tmp_path / "few", train=50, test=3)
    assert [len(part) for part in open_dataset(str(tmp_path / "few")).write_parcels(4, tmp_path)] == [1, 1, 1, 1]


def test_made_up_samples_need_no_files(tmp_path: Path) -> None:
    dataset = open_dataset("synthetic")
    assert dataset.spec == DataSpec("synthetic", 60000, (28, 28, 1), 10)
    assert dataset.write_parcels(2, tmp_path) == [[], []]


def test_images_are_made_up_in_the_size_a_network_is_made_for() -> None:
    assert open_dataset("synthetic", "inception_v3").spec == DataSpec("synthetic", 60000, (299, 299, 3), 1000)
    dataset = open_dataset("auto", "resnet20")
    assert (dataset.spec.name, dataset.spec.shape, dataset.spec.classes) == ("synthetic", (32, 32, 3), 10)
    assert dataset.note == "training on made-up images of 32x32x3: what resnet20 is made for"


def test_without_fashion_mnist_auto_says_what_it_does_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FASHION_MNIST", tmp_path / "absent")
    dataset = open_dataset("auto")
    assert dataset.spec.name == "synthetic"
    assert dataset.note is not None
    assert "apt-get install dataset-fashion-mnist" in dataset.note
    with pytest.raises(UsageError, match="no data at"):
        open_dataset("fashion-mnist")


def test_a_folder_without_images_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no train-images"):
        open_dataset(str(tmp_path))
    write_idx(tmp_path / "torn", train=5, test=5)
    (tmp_path / "torn/train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03only this")
    with pytest.raises(UsageError, match="damaged"):
        open_dataset(str(tmp_path / "torn"))


def test_more_phones_than_samples_is_bad_usage(tmp_path: Path) -> None:
    write_idx(tmp_path / "few", train=3, test=3)
    with pytest.raises(UsageError, match="not one for each of 4 phones"):
        open_dataset(str(tmp_path / "few")).write_parcels(4, tmp_path)
