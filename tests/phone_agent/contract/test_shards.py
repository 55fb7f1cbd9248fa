from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent.contract import layout
from phone_agent.contract.dataset_manifest import (
    MANIFEST_FILE,
    DatasetManifest,
    ManifestError,
    parse_manifest,
    shards_with,
    spans,
)
from phone_agent.contract.sharding import partition_span
from phone_agent.contract.shards import HEADER_BYTES, Header, ShardError, open_shard, unpack_header, write_shard
from phone_agent.data import Dataset, open_dataset, open_test
from phone_agent.data.receive import stored_files
from phone_agent.data.staged import Staged, read_manifest
from phone_agent.data.synthetic import Synthetic
from tests.phone_agent.datasets import CLASSES, SHAPE, damage, spec_of, stage

PIXELS = 16 * 16


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def staged(home: Path, train: int = 300, test: int = 0) -> tuple[Path, DatasetManifest]:
    directory = home / layout.dataset_dir("dots")
    return directory, stage(directory, train, test)


def everything(dataset: Dataset) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], list[int]]:
    images, labels = dataset.take(np.arange(len(dataset)))
    return images, labels.tolist()


def test_all_samples_come_back_in_any_order(home: Path) -> None:
    _, manifest = staged(home, train=120, test=30)
    dataset, made = open_dataset(spec_of(manifest), 0), Synthetic(150, SHAPE, CLASSES, seed=1)
    order = np.array([119, 3, 50, 49, 3, 0])
    images, labels = dataset.take(order)
    np.testing.assert_array_equal(images, made.take(order)[0])
    np.testing.assert_array_equal(labels, order % CLASSES)
    held_out = open_test(spec_of(manifest), 0)
    assert held_out is not None
    np.testing.assert_array_equal(everything(held_out)[0], made.take(np.arange(120, 150))[0])
    assert open_test(replace(spec_of(manifest), test_samples=0), 0) is None


@pytest.fixture
def few_files() -> Iterator[None]:
    """Not many more than are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_there_may_be_more_shards_than_files_that_may_be_open(home: Path) -> None:
    directory = home / layout.dataset_dir("dots")
    dataset = open_dataset(spec_of(stage(directory, train=90, per_shard=2)), 0)
    for _ in range(2):
        np.testing.assert_array_equal(
            everything(dataset)[0], Synthetic(90, SHAPE, CLASSES, seed=1).take(np.arange(90))[0]
        )


def test_a_share_needs_only_its_files(home: Path) -> None:
    directory, manifest = staged(home, train=120)
    span = partition_span(120, (3, 1), 1)
    assert span == (90, 120)
    wanted = {shard.name for shard in shards_with(manifest.train, [span])}
    assert wanted == {"train-00001.shard", "train-00002.shard"}
    (directory / "train-00000.shard").unlink()
    dataset = open_dataset(spec_of(manifest, whole=False), 0, (3, 1), 1)
    assert len(dataset.take(np.arange(*span))[1]) == 30
    with pytest.raises(ShardError, match=r"train-00000\.shard cannot be read .*pushed to this phone"):
        dataset.take(np.array([5]))


@given(st.integers(1, 1000), st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_shares_leave_nobody_and_nothing_out(samples: int, batches: list[int]) -> None:
    shares = [partition_span(samples, batches, rank) for rank in range(len(batches))]
    assert [start for start, _ in shares] == [0, *(end for _, end in shares[:-1])]
    assert shares[-1][1] == samples
    for (start, end), batch in zip(shares, batches, strict=True):
        assert abs((end - start) - samples * batch / sum(batches)) < 1


@pytest.mark.parametrize("place", [HEADER_BYTES, HEADER_BYTES + 7 * PIXELS + 5, HEADER_BYTES + 50 * PIXELS + 14, -30])
def test_a_flipped_bit_is_found_when_the_sample_is_taken(home: Path, place: int) -> None:
    directory, manifest = staged(home)
    damage(directory / "train-00001.shard", place)
    with pytest.raises(ShardError, match=r"sample \d+ of .*train-00001\.shard is damaged: .* data push .* skip"):
        everything(open_dataset(spec_of(manifest), 0))


@pytest.mark.parametrize(("on_corrupt", "damaged"), [("fail", 1), ("skip", 4)])
def test_what_is_refused_once_is_refused_again(home: Path, on_corrupt: str, damaged: int) -> None:
    directory, manifest = staged(home)
    for index in range(damaged):
        damage(directory / "train-00001.shard", HEADER_BYTES + 5 * index * PIXELS)
    dataset = open_dataset(spec_of(manifest, on_corrupt=on_corrupt), 0)
    for _ in range(2):
        with pytest.raises(ShardError, match="is damaged"):
            everything(dataset)


def test_damaged_samples_are_skipped_by_policy_and_told_once(home: Path) -> None:
    directory, manifest = staged(home)
    clean, _ = everything(open_dataset(spec_of(manifest), 0))
    for index in (7, 8):
        damage(directory / "train-00001.shard", HEADER_BYTES + index * PIXELS)
    told: list[str] = []
    dataset = open_dataset(spec_of(manifest, on_corrupt="skip"), 0, warn=told.append)
    for _ in range(2):
        images, _ = everything(dataset)
        np.testing.assert_array_equal(images[57], clean[59])
        np.testing.assert_array_equal(images[58], clean[59])
    np.testing.assert_array_equal(np.delete(images, [57, 58], 0), np.delete(clean, [57, 58], 0))
    assert [line.split(" of ")[0] for line in told] == ["sample 7", "sample 8"]


@pytest.mark.parametrize(
    ("damaged", "whole", "refused"),
    [(10, True, True), (3, True, False), (3, False, True), (1, False, False)],
)
def test_too_many_damaged_samples_are_not_skipped(home: Path, damaged: int, *, whole: bool, refused: bool) -> None:
    """One in a hundred of the 300 that all have, or of the 100 that are this phone's share."""
    directory, manifest = staged(home)
    for index in range(0, 5 * damaged, 5):
        damage(directory / "train-00001.shard", HEADER_BYTES + index * PIXELS)
    dataset = open_dataset(spec_of(manifest, whole=whole, on_corrupt="skip"), 0, (1, 2), 0)
    too_many = pytest.raises(ShardError, match="too many: the flash of the phone may be worn out")
    with too_many if refused else nullcontext():
        dataset.take(np.arange(100))


def wear_out(path: Path) -> None:
    """It can be opened; whoever reads from it gets an input/output error, as from flash that is worn out."""
    path.unlink()
    path.symlink_to("/proc/self/mem")  # nothing is ever mapped where a shard's bytes would be


def test_a_sample_that_cannot_be_read_is_a_damaged_one(home: Path) -> None:
    directory, manifest = staged(home)
    refusing = open_dataset(spec_of(manifest), 0)
    told: list[str] = []
    skipping = open_dataset(spec_of(manifest, on_corrupt="skip"), 0, warn=told.append)
    for dataset in (refusing, skipping):
        dataset.take(np.array([49, 50]))
    wear_out(directory / "train-00000.shard")
    with pytest.raises(ShardError, match=r"sample 49 of .*train-00000\.shard is damaged \(Input/output error\): "):
        refusing.take(np.array([49, 50]))
    images, _ = skipping.take(np.array([49, 50]))
    np.testing.assert_array_equal(images[0], images[1])
    assert [line.split(" of ")[0] for line in told] == ["sample 49"]


def test_a_file_that_is_gone_is_damaged_as_a_whole(home: Path) -> None:
    directory, manifest = staged(home)
    dataset = open_dataset(spec_of(manifest), 0)
    dataset.take(np.array([0]))
    (directory / "train-00000.shard").unlink()
    with pytest.raises(ShardError, match=r"sample 3 of .*train-00000\.shard is damaged \(No such file or directory\)"):
        dataset.take(np.array([3, 4]))


@pytest.mark.parametrize("place", [5, HEADER_BYTES + 7 * PIXELS], ids=["header", "sample"])
def test_a_file_found_damaged_is_not_believed_any_more(home: Path, place: int) -> None:
    """What was checked when it arrived is looked up by size and time, and rot changes neither."""
    directory, manifest = staged(home)
    path = directory / "train-00000.shard"
    assert stored_files("dots", verify=False)["files"][path.name] == manifest.train[0].sha256
    before = path.stat()
    damage(path, place)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert stored_files("dots", verify=False)["files"][path.name] == manifest.train[0].sha256
    with pytest.raises(ShardError, match="is damaged"):
        everything(open_dataset(spec_of(manifest), 0))
    assert stored_files("dots", verify=False)["files"][path.name] != manifest.train[0].sha256


def test_a_replacement_comes_from_the_phones_own_share(home: Path) -> None:
    directory, manifest = staged(home, train=100)
    (directory / "train-00000.shard").unlink()
    damage(directory / "train-00001.shard", HEADER_BYTES + 49 * PIXELS)
    dataset = open_dataset(spec_of(manifest, whole=False, on_corrupt="skip"), 0, (1, 1), 1)
    images, _ = dataset.take(np.array([99, 50]))
    np.testing.assert_array_equal(images[0], images[1])


@pytest.mark.parametrize("keep", [0, 5, HEADER_BYTES, HEADER_BYTES + 100, -1])
def test_a_cut_off_shard_is_found(tmp_path: Path, keep: int) -> None:
    stage(tmp_path / "dots", train=10)
    path = tmp_path / "dots/train-00000.shard"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ShardError, match="is damaged"):
        open_shard(path)


@given(st.integers(1, 1000), st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(1, 4)))
def test_headers_come_back(samples: int, shape: tuple[int, int, int]) -> None:
    header = Header(samples, shape)
    assert unpack_header(header.pack()) == header


@given(st.integers(1, 1000), st.integers(0, 8 * HEADER_BYTES - 1))
def test_a_header_with_one_flipped_bit_is_refused(samples: int, bit: int) -> None:
    raw = bytearray(Header(samples, SHAPE).pack())
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="damaged"):
        unpack_header(bytes(raw))


@given(st.binary(max_size=2 * HEADER_BYTES))
def test_garbage_is_no_header(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"damaged|truncated"):
        unpack_header(raw)


def test_nothing_is_left_of_a_shard_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("phone_agent.contract.shards.sample_checksums", full)
    with pytest.raises(OSError, match="No space"):
        write_shard(tmp_path / "train-00000.shard", np.zeros((2, 3, 3, 1), np.uint8), np.zeros(2, np.int64))
    assert not list(tmp_path.iterdir())


def test_another_dataset_of_the_same_name_is_refused(home: Path) -> None:
    _, manifest = staged(home, train=20)
    for other in (
        replace(spec_of(manifest), digest="0" * 16),
        replace(spec_of(manifest), shape=(28, 28, 1)),
        replace(spec_of(manifest), classes=9),
    ):
        with pytest.raises(
            ShardError, match=r"has another version of dots than the run expects: clusterctl data push dots"
        ):
            open_dataset(other, 0)


def test_a_shard_of_another_dataset_is_refused(tmp_path: Path) -> None:
    manifest = stage(tmp_path / "dots", train=20)
    stage(tmp_path / "other", train=19)
    (tmp_path / "other/train-00000.shard").rename(tmp_path / "dots/train-00000.shard")
    with pytest.raises(ShardError, match="belongs to another dataset"):
        Staged(tmp_path / "dots", manifest, manifest.train).take(np.array([0]))


def test_an_absent_dataset_says_how_it_comes(home: Path) -> None:
    with pytest.raises(ShardError, match="clusterctl data push dots"):
        open_dataset(spec_of(stage(home / "elsewhere/dots", train=10)), 0)


def test_a_manifest_comes_back(tmp_path: Path) -> None:
    manifest = stage(tmp_path / "dots", train=120, test=10)
    assert read_manifest(tmp_path / "dots") == manifest
    assert [span for _, span in spans(manifest.train)] == [(0, 50), (50, 100), (100, 120)]


HOSTILE: dict[str, tuple[str, object]] = {
    "a name that leaves the folder": ("name", "../x"),
    "another version": ("version", 7),
    "no shards": ("train", None),
    "a path as a shard": ("train", [{"name": "../../.ssh/config", "samples": 1, "bytes": 1, "sha256": "0" * 64}]),
    "a shard twice": ("train", [{"name": "train-00000.shard", "samples": 1, "bytes": 1, "sha256": "0" * 64}] * 2),
    "a test shard among the others": (
        "train",
        [{"name": "test-00000.shard", "samples": 1, "bytes": 1, "sha256": "0" * 64}],
    ),
    "no sha256": ("train", [{"name": "train-00000.shard", "samples": 1, "bytes": 1, "sha256": "x"}]),
    "less than nothing": ("train", [{"name": "train-00000.shard", "samples": -1, "bytes": 1, "sha256": "0" * 64}]),
    "an unknown field": ("color", "red"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_manifest_is_refused(tmp_path: Path, what: str) -> None:
    stage(tmp_path / "dots", train=10)
    key, value = HOSTILE[what]
    raw = json.loads((tmp_path / "dots" / MANIFEST_FILE).read_text())
    with pytest.raises(ManifestError):
        parse_manifest({**raw, key: value})
