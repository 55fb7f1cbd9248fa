"""A dataset stored on this phone: all samples, or a part of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.dataset_manifest import MANIFEST_FILE, DatasetManifest, ShardFile, Span, parse_manifest
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.files import read_json
from phone_agent.contract.shards import Images, Labels, Shard, ShardError, mark_unverified, open_shard

SKIP = "skip"
MAX_DAMAGED = 0.01  # fraction of the samples of a phone: beyond it, skipping would hide a broken phone


@dataclass(frozen=True)
class DamagedSample:
    """A sample whose checksum is wrong, or that is unreadable."""

    file: Path
    index: int
    why: str = ""  # the read error, if any

    def __str__(self) -> str:
        return f"sample {self.index} of {self.file} is damaged" + (f" ({self.why})" if self.why else "")


class Staged:
    """Samples are numbered over the whole dataset; a file is opened when one of its samples is read.

    `spans`: the samples on this phone; empty: all. A damaged sample is an error, or is replaced by the next good one
    with one warning. Either way its file is marked as unverified, so that the next push sends it again.
    """

    def __init__(
        self,
        directory: Path,
        manifest: DatasetManifest,
        files: Sequence[ShardFile],
        spans: Sequence[Span] = (),
        *,
        on_corrupt: str = "fail",
        warn: Callable[[str], None] = lambda _: None,
        lock: IO[str] | None = None,
    ) -> None:
        self.shape, self.class_names = manifest.shape, manifest.class_names
        self.mean, self.std = np.asarray(manifest.mean, np.float32), np.asarray(manifest.std, np.float32)
        self.damaged: dict[int, DamagedSample] = {}  # by sample number
        self._directory, self._files, self._on_corrupt, self._warn = directory, files, on_corrupt, warn
        self._ends = np.cumsum([file.samples for file in files])
        self._spans = spans or [(0, len(self))]
        self._read_here = sum(end - first for first, end in self._spans)
        self._open: dict[int, Shard] = {}
        if lock:
            weakref.finalize(self, lock.close)  # the files do not change while this object exists

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]:
        images = np.empty((len(indices), *self.shape), np.uint8)
        labels = np.empty(len(indices), np.int64)
        good = self._read(indices, images, labels)
        for position in np.flatnonzero(~good).tolist():
            self._replace(int(indices[position]), images[position : position + 1], labels[position : position + 1])
        return images, labels

    def _read(self, indices: NDArray[np.int64], images: Images, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        numbers = np.searchsorted(self._ends, indices, "right")
        good = np.ones(len(indices), bool)
        for number in np.unique(numbers).tolist():
            positions = np.flatnonzero(numbers == number)
            shard = self._shard(number)
            inside = indices[positions] - (int(self._ends[number]) - len(shard))
            some_images, some_labels = (
                np.empty((len(positions), *self.shape), np.uint8),
                np.empty(len(positions), np.int64),
            )
            good[positions] = shard.read(inside, some_images, some_labels)
            images[positions], labels[positions] = some_images, some_labels
        good &= (labels >= 0) & (labels < self.classes)
        return good

    def _shard(self, number: int) -> Shard:
        if number not in self._open:
            file = self._files[number]
            try:
                self._open[number] = self._opened(file)
            except ShardError:
                mark_unverified(self._directory / file.name)
                raise
        return self._open[number]

    def _opened(self, file: ShardFile) -> Shard:
        shard = open_shard(self._directory / file.name)
        if (len(shard), shard.header.shape) != (file.samples, self.shape):
            raise ShardError(f"{shard.path} belongs to another dataset", "clusterctl data push sends the right one")
        return shard

    def _replace(self, index: int, image: Images, label: NDArray[np.int64]) -> None:
        self._record_damage(index)
        first, end = next((start, end) for start, end in self._spans if start <= index < end)
        for further in range(1, int(MAX_DAMAGED * (end - first)) + 2):
            other = first + (index - first + further) % (end - first)
            if self._read(np.array([other]), image, label).all():
                return
        raise ShardError(f"{self.damaged[index]}, and all samples after it", "clusterctl data push sends them again")

    def _record_damage(self, index: int) -> None:
        number = int(np.searchsorted(self._ends, index, "right"))
        shard = self._shard(number)
        inside = index - (int(self._ends[number]) - len(shard))
        damaged = DamagedSample(shard.path, inside, shard.unreadable.get(inside, ""))
        known = index in self.damaged
        self.damaged[index] = damaged
        if not known:
            mark_unverified(shard.path)
        if self._on_corrupt != SKIP:
            raise ShardError(
                str(damaged), "clusterctl data push sends it again; --on-corrupt skip continues without it"
            )
        if len(self.damaged) > max(1, MAX_DAMAGED * self._read_here):
            raise ShardError(
                f"{damaged}, and {len(self.damaged) - 1} more", "too many: the flash of the phone may be worn out"
            )
        if not known:
            self._warn(f"{damaged}: skipped")


def read_manifest(directory: Path) -> DatasetManifest:
    raw = read_json(directory / MANIFEST_FILE)
    if raw is None:
        raise ShardError(
            f"{directory / MANIFEST_FILE} does not exist",
            f"clusterctl data push {directory.name}",
            code=ErrorCode.DATA_MISSING,
        )
    return parse_manifest(raw)
