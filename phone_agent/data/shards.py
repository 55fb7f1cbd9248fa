"""A dataset as files, one a phone. Made on the host, memory-mapped on the phone.

    8 bytes   magic
    4 bytes   header length, little-endian
    header    JSON: what it is, and the sha256 of itself and the payload
    padding   zeros to a multiple of 4096
    payload   images, uint8 NHWC, then labels, uint16 little-endian

Shard r of K holds samples r, r + K, r + 2K, ... of the dataset.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from phone_agent import layout
from phone_agent.data import Images, Labels
from phone_agent.errors import AgentError
from phone_agent.schema import DataSpec

MAGIC = b"CCSHARD1"
PREFIX = struct.Struct("<8sI")
PAGE = 4096

Name = Callable[[str, int, int], PurePosixPath]  # of a shard file: layout.shard_file or layout.test_file


class ShardError(AgentError):
    """A shard that is absent, damaged or of another dataset; names the file."""


@dataclass(frozen=True)
class Header:
    dataset: str
    index: int
    count: int
    samples: int
    shape: tuple[int, int, int]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def image_bytes(self) -> int:
        return self.samples * prod(self.shape)

    @property
    def payload_bytes(self) -> int:
        return self.image_bytes + 2 * self.samples

    def digest(self) -> hashlib._Hash:
        """Covers the header as well: a changed mean would train silently wrong."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode())


def write_shards(images: Images, labels: Labels, count: int, out: Path, name: Name = layout.shard_file) -> list[Path]:
    """One shard for each of `count` phones, in the folder of the dataset it is named after."""
    if count > len(images):
        raise ShardError(f"{out.name} has {len(images)} samples: not one for each of {count} phones")
    mean, std = _statistics(images)
    paths = []
    for index in range(count):
        path = out / name(out.name, index, count).name
        part, classes = images[index::count], int(labels.max()) + 1
        header = Header(out.name, index, count, len(part), images.shape[1:], classes, mean, std)
        _write(path, header, part, labels[index::count])
        paths.append(path)
    return paths


class Shard:
    """A shard on disk; samples are read when taken."""

    def __init__(self, path: Path, header: Header, start: int) -> None:
        self.header = header
        self.shape, self.classes = header.shape, header.classes
        self.mean, self.std = (np.asarray(by_channel, np.float32) for by_channel in (header.mean, header.std))
        self._images = np.memmap(path, np.uint8, "r", start, (header.samples, *header.shape))
        self._labels = np.memmap(path, "<u2", "r", start + header.image_bytes, (header.samples,))

    def __len__(self) -> int:
        return self.header.samples

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]:
        return np.asarray(self._images[indices]), np.asarray(self._labels[indices], np.int64)

    def check(self, spec: DataSpec) -> None:
        """Against what the run expects."""
        found, wanted = (self.shape, self.classes), (spec.shape, spec.classes)
        if found != wanted:
            raise ShardError(f"the staged {spec.name} has (shape, classes) {found}, the run expects {wanted}")


def open_shard(path: Path) -> Shard:
    """Reads all of it once, to know that it arrived whole."""
    header, expected, start = _read_header(path)
    digest = header.digest()
    with path.open("rb") as file:
        file.seek(start)
        while block := file.read(1 << 20):
            digest.update(block)
    if path.stat().st_size != start + header.payload_bytes or digest.hexdigest() != expected:
        raise ShardError(f"{path} is damaged (its sha256 is not the recorded one): stage it again")
    return Shard(path, header, start)


def _statistics(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation by channel; a channel without contrast is left as it is."""
    mean = images.mean(axis=(0, 1, 2), dtype=np.float64) / 255
    std = images.std(axis=(0, 1, 2), dtype=np.float64) / 255
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _write(path: Path, header: Header, images: Images, labels: Labels) -> None:
    pixels, classes = np.ascontiguousarray(images, np.uint8), np.ascontiguousarray(labels, "<u2")
    digest = header.digest()
    digest.update(pixels.data)
    digest.update(classes.data)
    text = json.dumps({**asdict(header), "sha256": digest.hexdigest()}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        file.write(PREFIX.pack(MAGIC, len(text)) + text)
        file.write(bytes(-file.tell() % PAGE))
        file.write(pixels.data)
        file.write(classes.data)
    temporary.replace(path)


def _read_header(path: Path) -> tuple[Header, str, int]:
    """The header, the recorded sha256, and where the payload starts."""
    try:
        with path.open("rb") as file:
            magic, length = PREFIX.unpack(file.read(PREFIX.size))
            raw = json.loads(file.read(length)) if magic == MAGIC else {}
        sha256, start = raw.pop("sha256"), PREFIX.size + length
        lists = {key: tuple(raw[key]) for key in ("shape", "mean", "std")}
        return Header(**{**raw, **lists}), sha256, start + -start % PAGE
    except OSError as error:
        raise ShardError(f"{path} cannot be read ({error.strerror}): is the dataset staged on this phone?") from None
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        raise ShardError(f"{path} is not a shard, or its header is damaged: stage it again") from None
