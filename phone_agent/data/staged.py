"""A dataset that lies on this phone: all of its samples, or a share of them."""

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
MOST_DAMAGED = 0.01  # of what a phone reads: where more is damaged, skipping would hide a broken phone


@dataclass(frozen=True)
class Damaged:
    """A sample that is not what was written."""

    file: Path
    index: int
    why: str = ""  # where it could not be read at all

    def __str__(self) -> str:
        return f"sample {self.index} of {self.file} is damaged" + (f" ({self.why})" if self.why else "")


class Staged:
    """Samples are numbered over the whole dataset; files are opened when a sample of theirs is taken.

    `spans`: those that are here; none: all. A damaged sample is an error, or is replaced by the next good one here and
    told once. Either way its file is not believed to be whole any more: whoever brings samples next sends it again.
    """

    def __init__(
        self,
        directory: Path,
        manifest: DatasetManifest,
        files: Sequence[ShardFile],
        spans: Sequence[Span] = (),
        *,
        on_corrupt: str = "fail",
        tell: Callable[[str], None] = lambda _: None,
        lock: IO[str] | None = None,
    ) -> None:
        self.shape, self.class_names = manifest.shape, manifest.class_names
        self.mean, self.std = np.asarray(manifest.mean, np.float32), np.asarray(manifest.std, np.float32)
        self.damaged: dict[int, Damaged] = {}  # by their numbers
        self._directory, self._files, self._on_corrupt, self._tell = directory, files, on_corrupt, tell
        self._ends = np.cumsum([file.samples for file in files])
        self._spans = spans or [(0, len(self))]
        self._read_here = sum(end - first for first, end in self._spans)
        self._open: dict[int, Shard] = {}
        if lock:
            weakref.finalize(self, lock.close)  # nobody changes the files as long as this is here

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]:
        images = np.empty((len(indices), *self.shape), np.uint8)
        labels = np.empty(len(indices), np.int64)
        good = self._read(indices, images, labels)
        for place in np.flatnonzero(~good).tolist():
            self._replace(int(indices[place]), images[place : place + 1], labels[place : place + 1])
        return images, labels

    def _read(self, indices: NDArray[np.int64], images: Images, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        numbers = np.searchsorted(self._ends, indices, "right")
        good = np.ones(len(indices), bool)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            shard = self._shard(number)
            inside = indices[places] - (int(self._ends[number]) - len(shard))
            some_images, some_labels = np.empty((len(places), *self.shape), np.uint8), np.empty(len(places), np.int64)
            good[places] = shard.read(inside, some_images, some_labels)
            images[places], labels[places] = some_images, some_labels
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
            raise ShardError(f"{shard.path} is of another dataset", "clusterctl data push sends the right one")
        return shard

    def _replace(self, index: int, image: Images, label: NDArray[np.int64]) -> None:
        self._found(index)
        first, end = next((start, end) for start, end in self._spans if start <= index < end)
        for further in range(1, int(MOST_DAMAGED * (end - first)) + 2):
            other = first + (index - first + further) % (end - first)
            if self._read(np.array([other]), image, label).all():
                return
        raise ShardError(f"{self.damaged[index]}, and all after it", "clusterctl data push sends them again")

    def _found(self, index: int) -> None:
        number = int(np.searchsorted(self._ends, index, "right"))
        shard = self._shard(number)
        inside = index - (int(self._ends[number]) - len(shard))
        damaged = Damaged(shard.path, inside, shard.unreadable.get(inside, ""))
        known = index in self.damaged
        self.damaged[index] = damaged
        if not known:
            mark_unverified(shard.path)
        if self._on_corrupt != SKIP:
            raise ShardError(str(damaged), "clusterctl data push sends it again, --on-corrupt skip goes on without it")
        if len(self.damaged) > max(1, MOST_DAMAGED * self._read_here):
            raise ShardError(f"{damaged}, and {len(self.damaged) - 1} more", "too many; is the phone's flash worn out?")
        if not known:
            self._tell(f"{damaged}: it is skipped")


def read_manifest(directory: Path) -> DatasetManifest:
    raw = read_json(directory / MANIFEST_FILE)
    if raw is None:
        raise ShardError(
            f"there is no {directory / MANIFEST_FILE}",
            f"clusterctl data push {directory.name} brings it",
            code=ErrorCode.DATA_MISSING,
        )
    return parse_manifest(raw)
