from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.runs import dataset as module
from orchestrator.runs.dataset import SYNTHETIC, open_dataset
from phone_agent.data.shards import open_shard
from tests.runs.idx import write_idx


def test_a_folder_of_idx_files_becomes_one_shard_a_phone(tmp_path: Path) -> None:
    write_idx(tmp_path / "Two Words", train=50, test=10)
    dataset = open_dataset(str(tmp_path / "Two Words"))
    assert (dataset.spec.name, dataset.spec.samples, dataset.spec.shape) == ("two-words", 50, (28, 28, 1))
    parcels = dataset.write_shards(4, tmp_path)
    assert [len(open_shard(parcel.path)) for parcel in parcels] == [13, 13, 12, 12]
    assert str(parcels[3].remote) == ".clusterctl/data/two-words/0003-of-0004.shard"
    assert len({parcel.sha256 for parcel in parcels}) == 4
    test = dataset.write_test(tmp_path)
    assert test is not None
    assert len(open_shard(test.path)) == 10


def test_made_up_samples_need_no_files(tmp_path: Path) -> None:
    dataset = open_dataset("synthetic")
    assert dataset.spec == SYNTHETIC
    assert dataset.write_shards(4, tmp_path) == []
    assert dataset.write_test(tmp_path) is None


def test_without_fashion_mnist_auto_says_what_it_does_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FASHION_MNIST", tmp_path / "absent")
    dataset = open_dataset("auto")
    assert dataset.spec == SYNTHETIC
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
