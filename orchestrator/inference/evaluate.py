"""Evaluate a trained model on held-out samples, or predict the classes of images, on this computer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.sources.folder import decode
from orchestrator.data.store import Store
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.inference.model import TrainedModel
from orchestrator.text import one_line
from phone_agent.api.inference import evaluate_test_set
from phone_agent.api.models import Shape
from phone_agent.contract.shards import ShardError

BATCH = 32


@dataclass(frozen=True)
class Evaluation:
    data: str
    samples: int
    top1: float
    top5: float
    loss: float


@dataclass(frozen=True)
class Prediction:
    label: int
    name: str
    probability: float


def evaluate(trained: TrainedModel, data: str, threads: int) -> Evaluation:
    """Accuracy and loss on all held-out samples of a local dataset, preprocessed as in training."""
    stored = Store().get(data)
    manifest = stored.manifest
    _check_classes(trained, data, manifest.class_names)
    if not manifest.test:
        raise UsageError(f"{data} has no held-out samples", remedy="choose another dataset with --data")
    batch = min(BATCH, manifest.test_samples)
    try:
        means = evaluate_test_set(
            trained.compile(batch, threads), stored.directory, manifest, trained.preprocessing(batch)
        )
    except ShardError as error:  # its remedy is for a phone
        raise ClusterctlError(error.what, remedy=f"clusterctl data remove {data}, then add it again") from None
    return Evaluation(data, manifest.test_samples, means["top1"], means["top5"], means["loss"])


def _check_classes(trained: TrainedModel, data: str, class_names: Sequence[str]) -> None:
    """Labels are positions in the list of classes, so order counts. Weights from elsewhere may not name theirs."""
    if len(class_names) != trained.graph.classes:
        message = f"{data} has {len(class_names)} classes, the model {trained.graph.classes}"
        raise UsageError(message, remedy="choose another dataset with --data")
    learned = trained.about.class_names or tuple(class_names)
    for label, (ours, theirs) in enumerate(zip(class_names, learned, strict=True)):
        if ours != theirs:
            same = sorted(class_names) == sorted(learned)
            what = "the classes of the model in another order" if same else "other classes than the model"
            raise UsageError(
                f"{data} has {what}: class {label} is {one_line(ours)!r}, the model learned {one_line(theirs)!r}",
                remedy="choose the dataset that the model was trained on (--data), "
                "or rename the class folders and add the dataset again: clusterctl data add --help",
            )


def predict(trained: TrainedModel, paths: Sequence[Path], top: int, threads: int) -> list[list[Prediction]]:
    """The most probable classes of each image, best first."""
    batch = min(BATCH, len(paths))
    executable, preprocessing = trained.compile(batch, threads), trained.preprocessing(batch)
    predictions = []
    for start in range(0, len(paths), batch):
        images = np.stack([read_image(path, trained.stored_shape) for path in paths[start : start + batch]])
        predictions += [
            _top_classes(scores, top, trained.names) for scores in executable.forward(preprocessing.normalize(images))
        ]
    return predictions


def read_image(path: Path, shape: Shape) -> NDArray[np.uint8]:
    """Read an image as `data add` stores it; grayscale if the model takes one channel."""
    height, width, channels = shape
    try:
        image = decode(path, max(height, width))
    except Exception as error:  # noqa: BLE001 - decoders raise anything on damaged files
        raise UsageError(f"{path} is not a readable image: {error}", remedy="pass JPEG or PNG files") from None
    top, left = ((max(height, width) - side) // 2 for side in (height, width))
    middle = image[top : top + height, left : left + width]
    return middle if channels == 3 else np.repeat(_grayscale(middle), channels, axis=2)


def _grayscale(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.fromarray(image).convert("L"), np.uint8)[:, :, None]


def _top_classes(scores: NDArray[np.float32], top: int, names: Sequence[str]) -> list[Prediction]:
    probabilities = np.exp(scores.astype(np.float64) - scores.max())
    probabilities /= probabilities.sum()
    best = np.argsort(-probabilities, kind="stable")[:top]
    return [Prediction(int(label), names[label], float(probabilities[label])) for label in best]
