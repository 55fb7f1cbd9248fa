"""Load a trained model from a checkpoint or a weights file, to run it on this computer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.decompress import check_zip
from orchestrator.errors import UsageError
from phone_agent.api import models
from phone_agent.api.inference import Executable, compile_graph
from phone_agent.api.models import Graph, Shape
from phone_agent.api.training import (
    Checkpoint,
    CheckpointMetadata,
    State,
    WeightsError,
    from_state_dict,
    read_checkpoint,
)

PICKLES = (".pth", ".pt", ".ckpt", ".bin", ".pkl")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as torchvision weights expect
STORED, CROPPED = 256, 224  # pixels per side, as `data add` stores images; ImageNet models use a center crop
OF_WHICH = "choose the model with --model"
CONVERT = (
    'python -c "import torch; from safetensors.torch import save_file; '
    "save_file(torch.load('{name}', weights_only=True), '{stem}.safetensors')\""
)

Array = NDArray[Any]


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing: center crop, then normalization with the mean and deviation of the training data."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    shape: Shape
    batch: int = 1

    def normalize(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        height, width, channels = self.shape
        top, left = ((have - want) // 2 for have, want in zip(images.shape[1:3], (height, width), strict=True))
        if min(top, left) < 0 or images.shape[3] != channels:
            shape = "x".join(map(str, images.shape[1:]))
            raise UsageError(f"images are {shape}; the model expects {height}x{width}x{channels}")
        middle = images[:, top : top + height, left : left + width].astype(np.float32)
        mean, std = (np.array(by_channel, np.float32) for by_channel in (self.mean, self.std))
        return (middle / np.float32(255) - mean) / std


@dataclass(frozen=True)
class TrainedModel:
    source: Path
    graph: Graph
    state: State
    about: CheckpointMetadata

    def compile(self, batch: int, threads: int) -> Executable:
        return compile_graph(self.graph, self.state, batch, threads)

    def preprocessing(self, batch: int) -> Preprocessing:
        return Preprocessing(self.about.mean, self.about.std, self.graph.shape, batch)

    @property
    def stored_shape(self) -> Shape:
        """Shape of the stored training samples, before the center crop."""
        return self.about.stored or self.graph.shape

    @property
    def names(self) -> tuple[str, ...]:
        known = self.about.class_names
        return known if len(known) == self.graph.classes else tuple(map(str, range(self.graph.classes)))


def open_trained(source: Path, model: str | None = None) -> TrainedModel:
    """`model` is required if the file does not name its model, and for custom models."""
    checkpoint = read_weights(source)
    name = model or _require_model(checkpoint.info, source)
    graph = models.build(name, *_made_for(checkpoint, name))
    state = State(graph, seed=0)
    try:
        from_state_dict(graph, state, checkpoint.weights)
    except WeightsError as error:
        raise UsageError(f"{source}, read as {name}: {error}", remedy=OF_WHICH) from None
    return TrainedModel(source, graph, state, _completed(checkpoint.info, name, graph))


def read_weights(path: Path) -> Checkpoint:
    """Read a checkpoint, any safetensors file, or an .npz. Pickles can run code and are rejected."""
    if path.suffix.lower() in PICKLES:
        convert = CONVERT.format(name=path.name, stem=path.stem)
        raise UsageError(f"{path} is a pickle, which can run arbitrary code; convert it first", remedy=convert)
    if path.suffix.lower() == ".npz":
        return Checkpoint(_npz(path))
    return read_checkpoint(path)


def _npz(path: Path) -> dict[str, Array]:
    try:
        check_zip(path)
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # noqa: BLE001 - zipfile, its decompressors and numpy raise anything on damaged files
        raise UsageError(
            f"{path} is not an .npz file of plain arrays: {str(error) or type(error).__name__}",
            remedy="write it with numpy.savez",
        ) from None


def _require_model(about: CheckpointMetadata, source: Path) -> str:
    if not about.model:
        raise UsageError(f"{source} does not name its model", remedy=OF_WHICH)
    if models.is_custom(about.model):
        raise UsageError(
            f"{source} was trained with the custom model {about.model}", remedy=f"--model path/to/{about.model}"
        )
    return about.model


def _made_for(checkpoint: Checkpoint, name: str) -> tuple[int, Shape]:
    """Number of classes and image shape: from the metadata, or from the weights of the last layer."""
    published = models.model(name)
    if checkpoint.info.classes is not None and checkpoint.info.shape is not None:
        return checkpoint.info.classes, checkpoint.info.shape
    graph = models.build(name, published.classes, published.shape)
    head = next(node for node in reversed(graph.nodes) if node.parameters)
    weight = checkpoint.weights.get(f"{head.name}.weight")
    return (len(weight) if weight is not None and weight.ndim else published.classes), published.shape


def _usually_stored(shape: Shape) -> Shape:
    """For weights from elsewhere: ImageNet models use a center crop of 224 from 256 pixels (or in proportion);
    models for small images use the whole image."""
    height, width, channels = shape
    if min(height, width) < CROPPED:
        return shape
    return round(height * STORED / CROPPED), round(width * STORED / CROPPED), channels


def _completed(about: CheckpointMetadata, name: str, graph: Graph) -> CheckpointMetadata:
    """Fill in missing metadata: torchvision normalization for RGB, otherwise -1 to 1."""
    channels = graph.shape[2]
    colors = channels == len(IMAGENET_MEAN)
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if colors else ((0.5,) * channels, (0.5,) * channels)
    return replace(
        about,
        model=Path(name).name,
        classes=graph.classes,
        shape=graph.shape,
        stored=about.stored or _usually_stored(graph.shape),
        mean=about.mean or mean,
        std=about.std or std,
    )
