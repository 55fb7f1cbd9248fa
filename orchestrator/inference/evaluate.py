"""A trained network at work on this computer: judged by held-out samples, or asked what a picture shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.sources.folder import decode
from orchestrator.data.store import Store
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.inference.model import Trained
from phone_agent.api.inference import evaluate_test_set
from phone_agent.api.models import Shape
from phone_agent.contract.shards import ShardError

BATCH = 32


@dataclass(frozen=True)
class Judged:
    data: str
    samples: int
    top1: float
    top5: float
    loss: float


@dataclass(frozen=True)
class Guess:
    label: int
    name: str
    probability: float


def judge(trained: Trained, data: str, threads: int) -> Judged:
    """On all held-out samples of a dataset of this computer's, prepared as those it was trained on."""
    stored = Store().get(data)
    manifest = stored.manifest
    if len(manifest.class_names) != trained.graph.classes:
        told = f"{data} has {len(manifest.class_names)} classes, the network {trained.graph.classes}"
        raise UsageError(told, remedy="name another dataset with --data")
    if not manifest.test:
        raise UsageError(f"{data} has no held-out samples", remedy="name another dataset with --data")
    batch = min(BATCH, manifest.test_samples)
    try:
        means = evaluate_test_set(
            trained.compile(batch, threads), stored.directory, manifest, trained.preparation(batch)
        )
    except ShardError as error:  # its advice is for a phone
        raise ClusterctlError(error.what, remedy=f"clusterctl data remove {data}, then add it again") from None
    return Judged(data, manifest.test_samples, means["top1"], means["top5"], means["loss"])


def predict(trained: Trained, pictures: Sequence[Path], top: int, threads: int) -> list[list[Guess]]:
    """The likeliest classes of each picture, best first."""
    batch = min(BATCH, len(pictures))
    executable, preparation = trained.compile(batch, threads), trained.preparation(batch)
    guesses = []
    for start in range(0, len(pictures), batch):
        images = np.stack([read_picture(path, trained.stored_shape) for path in pictures[start : start + batch]])
        guesses += [
            _guesses(scores, top, trained.names) for scores in executable.forward(preparation.normalise(images))
        ]
    return guesses


def read_picture(path: Path, shape: Shape) -> NDArray[np.uint8]:
    """As `data add` stores one; grey where the network sees no colours."""
    height, width, channels = shape
    try:
        picture = decode(path, max(height, width))
    except Exception as error:  # noqa: BLE001 - decoders raise anything on damaged files
        raise UsageError(f"{path} cannot be read as a picture: {error}", remedy="give JPEG or PNG files") from None
    top, left = ((max(height, width) - side) // 2 for side in (height, width))
    middle = picture[top : top + height, left : left + width]
    return middle if channels == 3 else np.repeat(_grey(middle), channels, axis=2)


def _grey(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.fromarray(picture).convert("L"), np.uint8)[:, :, None]


def _guesses(scores: NDArray[np.float32], top: int, names: Sequence[str]) -> list[Guess]:
    chances = np.exp(scores.astype(np.float64) - scores.max())
    chances /= chances.sum()
    best = np.argsort(-chances, kind="stable")[:top]
    return [Guess(int(label), names[label], float(chances[label])) for label in best]
