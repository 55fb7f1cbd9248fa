"""Small datasets as stored on a phone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from phone_agent.contract.dataset_manifest import MANIFEST_FILE, DatasetManifest, ShardFile
from phone_agent.contract.files import write_json
from phone_agent.contract.schema import DataSpec
from phone_agent.contract.shards import Images, Labels, write_shard
from phone_agent.data.synthetic import Synthetic

SHAPE, CLASSES = (16, 16, 1), 4


def stage(
    directory: Path, train: int = 300, test: int = 0, per_shard: int = 50, keep: Sequence[str] | None = None
) -> DatasetManifest:
    """Writes dataset.json and its shards, or only the named ones."""
    directory.mkdir(parents=True)
    made = Synthetic(train + test, SHAPE, CLASSES, seed=1)
    files: dict[str, list[ShardFile]] = {"train": [], "test": []}
    for part, first, end in (("train", 0, train), ("test", train, train + test)):
        for start in range(first, end, per_shard):
            path = directory / f"{part}-{len(files[part]):05}.shard"
            files[part].append(_shard(path, *made.take(np.arange(start, min(start + per_shard, end)))))
            if keep is not None and path.name not in keep:
                path.unlink()
    names, channels = tuple(f"class {label}" for label in range(CLASSES)), SHAPE[2]
    mean, std = (0.5,) * channels, (0.25,) * channels
    manifest = DatasetManifest(
        directory.name, "test", SHAPE, names, mean, std, tuple(files["train"]), tuple(files["test"])
    )
    write_json(directory / MANIFEST_FILE, manifest.to_json())
    return manifest


def spec_of(manifest: DatasetManifest, *, whole: bool = True, on_corrupt: str = "fail") -> DataSpec:
    return DataSpec(
        manifest.name, manifest.samples, manifest.shape, len(manifest.class_names), test_samples=manifest.test_samples,
        replicated=whole, on_corrupt=on_corrupt, digest=manifest.digest,
    )  # fmt: skip


def damage(path: Path, place: int) -> None:
    """Flips a bit."""
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)


def _shard(path: Path, images: Images, labels: Labels) -> ShardFile:
    write_shard(path, images, labels)
    raw = path.read_bytes()
    return ShardFile(path.name, len(labels), len(raw), hashlib.sha256(raw).hexdigest())
