"""Shards: samples in files of a fixed size, written on the host and read on phones.

    64 bytes  header: magic, samples, height, width, channels, and the crc32 of these
    images    uint8 NHWC
    labels    uint16 little-endian
    checks    uint32 little-endian, one per sample: crc32 of its image and label

The sha256 of a file is in the manifest of the dataset and is verified when the file arrives. The check of a sample is
verified each time the sample is read: the flash of an old phone may fail at any time.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.files import atomic_write

MAGIC = b"CCSHARD2"
FIELDS = struct.Struct("<8s4I")
CHECK = struct.Struct("<I")
HEADER_BYTES = 64
SHARD_BYTES = 8 << 20
MAX_SIDE, MAX_CHANNELS, MAX_SAMPLES = 1 << 14, 1 << 10, 1 << 24
MAX_CLASSES = 1 << 16

Images = NDArray[np.uint8]
Labels = NDArray[np.integer[Any]]
Shape = tuple[int, int, int]


class ShardError(AgentError):
    """Samples that are missing, damaged or of another dataset. `what` names the file; `advice` applies on a phone."""

    code = ErrorCode.DATA_DAMAGED

    def __init__(self, what: str, advice: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(f"{what}: {advice}", code=code)
        self.what = what


@dataclass(frozen=True)
class Header:
    samples: int
    shape: Shape

    @property
    def labels_at(self) -> int:
        return HEADER_BYTES + self.samples * prod(self.shape)

    @property
    def checks_at(self) -> int:
        return self.labels_at + 2 * self.samples

    @property
    def file_bytes(self) -> int:
        return self.checks_at + 4 * self.samples

    def pack(self) -> bytes:
        fields = FIELDS.pack(MAGIC, self.samples, *self.shape)
        return (fields + CHECK.pack(zlib.crc32(fields))).ljust(HEADER_BYTES, b"\0")


def unpack_header(raw: bytes, file_bytes: int | None = None) -> Header:
    """Raises ValueError for a header that `pack` did not write, and for a file of another size than the header says."""
    if len(raw) != HEADER_BYTES:
        raise ValueError("truncated within the header")
    magic, samples, *shape = FIELDS.unpack_from(raw)
    height, width, channels = shape
    header = Header(samples, (height, width, channels))
    sane = 1 <= samples <= MAX_SAMPLES and max(height, width) <= MAX_SIDE and channels <= MAX_CHANNELS
    if magic != MAGIC or not sane or not prod(shape) or raw != header.pack():
        raise ValueError("the header is damaged")
    if file_bytes not in {None, header.file_bytes}:
        raise ValueError(f"{file_bytes} bytes, expected {header.file_bytes}")
    return header


def samples_per_shard(shape: Shape) -> int:
    return max(1, SHARD_BYTES // (prod(shape) + 6))


def write_shard(path: Path, images: Images, labels: Labels) -> None:
    """Writes the file atomically."""
    pixels, classes = np.ascontiguousarray(images, np.uint8), np.ascontiguousarray(labels, "<u2")
    height, width, channels = pixels.shape[1:]
    with atomic_write(path) as file:
        file.write(Header(len(pixels), (height, width, channels)).pack())
        file.write(pixels.data)
        file.write(classes.data)
        file.write(sample_checksums(pixels, classes).data)


def sample_checksums(images: Images, labels: NDArray[np.uint16]) -> NDArray[np.uint32]:
    pairs = zip(images, labels.view(np.uint8).reshape(len(labels), 2), strict=True)
    return np.array([zlib.crc32(label.data, zlib.crc32(image.data)) for image, label in pairs], "<u4")


class Shard:
    """A shard on disk, read sample by sample.

    It is not kept open, because a dataset may have more shards than a process may have open files. It is not
    memory-mapped, because a read error of the flash would then kill the process with SIGBUS.
    """

    def __init__(self, path: Path, header: Header, labels: NDArray[np.uint16], sums: NDArray[np.uint32]) -> None:
        self.path, self.header = path, header
        self.unreadable: dict[int, str] = {}  # samples that cannot be read, with the error
        self._labels, self._checks = labels, sums

    def __len__(self) -> int:
        return self.header.samples

    def read(self, indices: NDArray[np.int64], images: Images, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Fills images and labels with these samples. Returns which of them pass their check."""
        classes = self._labels[indices]
        there = self._fill(indices.tolist(), images)
        labels[...] = classes
        good: NDArray[np.bool_] = there & (sample_checksums(images, classes) == self._checks[indices])
        return good

    def _fill(self, indices: Sequence[int], images: Images) -> NDArray[np.bool_]:
        """Returns which samples could be read: a bad block of the flash spoils only some of a file."""
        try:
            with self.path.open("rb", buffering=0) as file:
                return np.array([self._read_one(file, *each) for each in zip(indices, images, strict=True)], bool)
        except OSError as error:
            self.unreadable.update(dict.fromkeys(indices, error.strerror or str(error)))
            return np.zeros(len(indices), bool)

    def _read_one(self, file: FileIO, index: int, image: Images) -> bool:
        try:
            file.seek(HEADER_BYTES + index * image.size)
            file.readinto(image.data)
        except OSError as error:
            self.unreadable[index] = error.strerror or str(error)
            return False
        return True


def open_shard(path: Path) -> Shard:
    try:
        with path.open("rb") as file:
            header = unpack_header(file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size)
            file.seek(header.labels_at)
            labels = np.frombuffer(file.read(2 * header.samples), "<u2")
            sums = np.frombuffer(file.read(4 * header.samples), "<u4")
    except OSError as error:
        raise ShardError(
            f"{path} cannot be read ({error.strerror})",
            "is the dataset pushed to this phone?",
            code=ErrorCode.DATA_MISSING,
        ) from None
    except ValueError as error:
        raise ShardError(f"{path} is damaged ({error})", "clusterctl data push sends it again") from None
    return Shard(path, header, labels, sums)


def mark_unverified(path: Path) -> None:
    """Changes the modification time, so that the next push verifies the file again and replaces it if it is damaged."""
    with suppress(OSError):
        os.utime(path)
