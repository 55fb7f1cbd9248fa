"""Import a dataset: convert a source into checksummed shards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.sources import recognize
from orchestrator.data.sources.source import Block, CorruptRecord, Images, Labels, Source, SourceError
from orchestrator.data.store import Store, StoredDataset, check_name, fingerprint, write_manifest
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.text import count_of
from phone_agent.contract.dataset_manifest import DatasetManifest, ShardFile
from phone_agent.contract.shards import samples_per_shard, write_shard

POLICIES = ("fail", "skip")
DEFAULT_SIZE, SMALLEST_SIZE, LARGEST_SIZE = 256, 8, 1024
MAX_LISTED = 10  # corrupt records listed individually

OnProgress = Callable[[int, int], None]  # records done, records in all


class CorruptDataError(ClusterctlError):
    """Some records are corrupt, and --on-corrupt is `fail`."""

    def __init__(self, damaged: list[CorruptRecord]) -> None:
        lines = [f"  {each}" for each in damaged[:MAX_LISTED]]
        more = [f"  and {len(damaged) - MAX_LISTED} more"] if len(damaged) > MAX_LISTED else []
        head = f"{count_of(damaged, 'corrupt record')}; nothing was added:"
        super().__init__("\n".join([head, *lines, *more]), remedy="use --on-corrupt skip to leave them out")

    exit_code = UsageError.exit_code


@dataclass(frozen=True)
class Added:
    stored: StoredDataset
    fresh: bool  # False: an identical dataset already existed
    damaged: list[CorruptRecord]


def add(
    name: str,
    path: Path,
    *,
    size: int = DEFAULT_SIZE,
    on_corrupt: str = "fail",
    store: Store | None = None,
    on_progress: OnProgress = lambda _done, _total: None,
) -> Added:
    """Import `path` as dataset `name`. Idempotent; a different source under the same name is rejected."""
    store = store or Store()
    check_name(name)
    if on_corrupt not in POLICIES:
        raise UsageError(f"--on-corrupt {on_corrupt}: choose {' or '.join(POLICIES)}")
    if not SMALLEST_SIZE <= size <= LARGEST_SIZE:
        raise UsageError(f"--size {size}: must be between {SMALLEST_SIZE} and {LARGEST_SIZE} pixels")
    if not path.exists():
        recognize(path, size)
    if existing := _find_identical(store, name, path, size, on_corrupt):
        return Added(existing, fresh=False, damaged=[])
    source_id = _fingerprint(path, size, on_corrupt)
    source = recognize(path, size)
    _reject_known_corruption(source, on_corrupt)
    with store.create(name) as directory:
        manifest, damaged = _write(name, source, directory, on_corrupt, on_progress)
        origin: dict[str, object] = {
            "path": str(path.absolute()),
            "fingerprint": source_id,
            "files": fingerprint(path),
            "damaged": [str(each) for each in damaged],
        }
        write_manifest(directory, manifest, origin)
    return Added(store.get(name), fresh=True, damaged=damaged)


def preview(name: str, path: Path, *, on_corrupt: str = "fail", store: Store | None = None) -> Source:
    """The source that `add` would import; raises where `add` would, as far as that is known without decoding."""
    source = recognize(path, DEFAULT_SIZE)
    if not _find_identical(store or Store(), check_name(name), path, DEFAULT_SIZE, on_corrupt):
        _reject_known_corruption(source, on_corrupt)
    return source


def _reject_known_corruption(source: Source, on_corrupt: str) -> None:
    if on_corrupt != "skip" and (damaged := source.known_corruption()):
        raise CorruptDataError(damaged)


def _fingerprint(path: Path, size: int, on_corrupt: str) -> str:
    return fingerprint(path, f"{size} {on_corrupt}")


def _find_identical(store: Store, name: str, path: Path, size: int, on_corrupt: str) -> StoredDataset | None:
    """The existing dataset if it was made from the same source; without corrupt records the policy does not matter."""
    existing = store.find(name)
    if existing is None:
        return None
    origin = existing.origin
    made_with = next((each for each in POLICIES if origin.get("fingerprint") == _fingerprint(path, size, each)), None)
    if made_with == on_corrupt or (made_with and not origin.get("damaged")):
        return existing
    differs = " with --on-corrupt skip, which left out corrupt records" if made_with else _difference(existing, path)
    raise UsageError(
        f"dataset '{name}' already exists, imported from {origin.get('path')}{differs}",
        remedy=f"clusterctl data remove {name}",
    )


def _difference(existing: StoredDataset, path: Path) -> str:
    """What changed since the import, if the path is the same."""
    if existing.origin.get("files") == fingerprint(path):
        return " with a different --size"
    return "; its files have changed since" if existing.origin.get("path") == str(path.absolute()) else ""


def _write(
    name: str, source: Source, directory: Path, on_corrupt: str, on_progress: OnProgress
) -> tuple[DatasetManifest, list[CorruptRecord]]:
    total, statistics = source.records(), _Statistics(source.shape[2])
    damaged: list[CorruptRecord] = []
    done = 0

    def track(blocks: Iterator[Block], *, counted: bool) -> Iterator[Block]:
        nonlocal done
        for block in blocks:
            damaged.extend(block.damaged)
            if counted:
                statistics.add(block.images)
            yield block
            done += len(block.labels) + len(block.damaged)
            on_progress(done, total)

    train = _write_part(directory, "train", track(source.train(), counted=True), source.shape)
    test = _write_part(directory, "test", track(source.test(), counted=False), source.shape)
    if damaged and on_corrupt != "skip":
        raise CorruptDataError(damaged)
    if not train:
        raise SourceError(f"{name}: no training images are left")
    mean, std = statistics.result()
    return DatasetManifest(name, source.format, source.shape, source.class_names, mean, std, train, test), damaged


def _write_part(
    directory: Path, part: str, blocks: Iterator[Block], shape: tuple[int, int, int]
) -> tuple[ShardFile, ...]:
    files: list[ShardFile] = []
    for images, labels in _regrouped(blocks, samples_per_shard(shape)):
        path = directory / f"{part}-{len(files):05}.shard"
        write_shard(path, images, labels)
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        files.append(ShardFile(path.name, len(labels), path.stat().st_size, sha256))
    return tuple(files)


def _regrouped(blocks: Iterator[Block], size: int) -> Iterator[tuple[Images, Labels]]:
    """Regroup into blocks of `size` samples; the last may be smaller."""
    images: list[Images] = []
    labels: list[Labels] = []
    held = 0
    for block in blocks:
        start = 0
        while start < len(block.labels):
            end = min(len(block.labels), start + size - held)
            images.append(block.images[start:end])
            labels.append(block.labels[start:end])
            held += end - start
            start = end
            if held == size:
                yield np.concatenate(images), np.concatenate(labels)
                images, labels, held = [], [], 0
    if held:
        yield np.concatenate(images), np.concatenate(labels)


@dataclass
class _Statistics:
    """Mean and standard deviation per channel from exact histograms; a constant channel gets deviation 1."""

    channels: int
    counts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros((self.channels, 256), np.int64)

    def add(self, images: Images) -> None:
        for channel in range(self.channels):
            self.counts[channel] += np.bincount(images[..., channel].ravel(), minlength=256)

    def result(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        values = np.arange(256) / 255
        totals = np.maximum(self.counts.sum(axis=1), 1)
        mean = self.counts @ values / totals
        std = np.sqrt((self.counts * (values - mean[:, None]) ** 2).sum(axis=1) / totals)
        return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())
