from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from phone_agent import layout
from phone_agent.data import Images, Labels, open_dataset
from phone_agent.data.idx import read_idx, read_images_and_labels
from phone_agent.data.sampling import Normaliser
from phone_agent.data.shards import ShardError, open_shard, write_shards
from phone_agent.errors import AgentError
from phone_agent.schema import DataSpec

SAMPLES = 23


def dataset(samples: int = SAMPLES) -> tuple[Images, Labels]:
    pixels = np.arange(samples * 5 * 4 * 3) * 7 % 256
    return pixels.astype(np.uint8).reshape(samples, 5, 4, 3), np.arange(samples) % 9


@pytest.mark.parametrize("count", [1, 4, SAMPLES])
def test_shards_hold_every_sample_once(tmp_path: Path, count: int) -> None:
    images, labels = dataset()
    paths = write_shards(images, labels, count, tmp_path / "pets")
    assert len(paths) == count
    for index, path in enumerate(paths):
        shard = open_shard(path)
        got_images, got_labels = shard.take(np.arange(len(shard)))
        np.testing.assert_array_equal(got_images, images[index::count])
        np.testing.assert_array_equal(got_labels, labels[index::count])


def test_more_phones_than_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="pets has 23 samples: not one for each of 24 phones"):
        write_shards(*dataset(), 24, tmp_path / "pets")


def test_normalised_by_the_whole_dataset(tmp_path: Path) -> None:
    shards = [open_shard(path) for path in write_shards(*dataset(), 3, tmp_path / "pets")]
    values = np.concatenate(
        [Normaliser(shard, len(shard)).normalise(shard.take(np.arange(len(shard)))[0]) for shard in shards]
    )
    np.testing.assert_allclose(values.mean(axis=(0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(values.std(axis=(0, 1, 2)), 1, atol=1e-5)


@pytest.mark.parametrize("place", [0, 9, 40, 4096, -1])
def test_one_flipped_bit_anywhere_is_found(tmp_path: Path, place: int) -> None:
    (path,) = write_shards(*dataset(), 1, tmp_path / "pets")
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ShardError, match=r"0000-of-0001\.shard .*damaged.* stage it again"):
        open_shard(path)


@pytest.mark.parametrize("keep", [0, 5, 50, 4096, 5000])
def test_a_cut_off_shard_is_found(tmp_path: Path, keep: int) -> None:
    (path,) = write_shards(*dataset(), 1, tmp_path / "pets")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ShardError, match="damaged"):
        open_shard(path)


def test_an_absent_shard_asks_whether_it_is_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ShardError, match=r"pets/0001-of-0004\.shard cannot be read .*staged on this phone"):
        open_dataset(DataSpec("pets", 23, (5, 4, 3), 9), 1, 4, seed=0)


def test_a_shard_of_other_images_than_the_run_expects_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_shards(*dataset(), 2, tmp_path / layout.DATA / "pets")
    assert len(open_dataset(DataSpec("pets", 23, (5, 4, 3), 9), 1, 2, seed=0)) == 11
    with pytest.raises(ShardError, match="the run expects"):
        open_dataset(DataSpec("pets", 23, (28, 28, 1), 10), 1, 2, seed=0)


def test_held_out_shards_lie_beside_the_others(tmp_path: Path) -> None:
    write_shards(*dataset(), 2, tmp_path / "pets")
    held_out = write_shards(*dataset(), 2, tmp_path / "pets", layout.test_file)
    assert [path.name for path in held_out] == ["test-0000-of-0002.shard", "test-0001-of-0002.shard"]
    assert sum(len(open_shard(path)) for path in held_out) == SAMPLES
    assert len(list((tmp_path / "pets").iterdir())) == 4


def idx(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()


@pytest.mark.parametrize("gzipped", [True, False])
def test_idx_files_are_read(tmp_path: Path, *, gzipped: bool) -> None:
    pack = gzip.compress if gzipped else bytes
    images, labels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3), np.array([7, 1], np.uint8)
    for name, array in (("images", images), ("labels", labels)):
        (tmp_path / name).write_bytes(pack(idx(array)))
    got_images, got_labels = read_images_and_labels(tmp_path / "images", tmp_path / "labels")
    np.testing.assert_array_equal(got_images, images[..., None])
    np.testing.assert_array_equal(got_labels, labels)


@pytest.mark.parametrize("raw", [b"", b"hello", idx(np.zeros((2, 2), np.uint8))[:-1], b"\x1f\x8bnot gzip at all"])
def test_a_damaged_idx_file_is_told(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "images").write_bytes(raw)
    with pytest.raises(AgentError, match="images"):
        read_idx(tmp_path / "images")
