"""A trained network on this computer: from a run's checkpoint or a file of weights to scores of images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import UsageError
from phone_agent.api import models
from phone_agent.api.inference import Executable, compile_graph
from phone_agent.api.models import Graph, Shape
from phone_agent.api.weights import About, Checkpoint, State, WeightsError, from_state_dict, read_checkpoint

PICKLES = (".pth", ".pt", ".ckpt", ".bin", ".pkl")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what torchvision's weights expect
STORED, CROPPED = 256, 224  # pixels a side: as `data add` stores pictures, and ImageNet's networks read their middle
OF_WHICH = "name the network with --model"
CONVERT = (
    'python -c "import torch; from safetensors.torch import save_file; '
    "save_file(torch.load('{name}', weights_only=True), '{stem}.safetensors')\""
)

Array = NDArray[Any]


@dataclass(frozen=True)
class Preparation:
    """Stored images as the network reads them: their middle, each channel by its mean and deviation in training."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    shape: Shape
    batch: int = 1

    def normalise(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        height, width, channels = self.shape
        top, left = ((have - want) // 2 for have, want in zip(images.shape[1:3], (height, width), strict=True))
        if min(top, left) < 0 or images.shape[3] != channels:
            told = "x".join(map(str, images.shape[1:]))
            raise UsageError(f"images of {told}; the network takes {height}x{width}x{channels}")
        middle = images[:, top : top + height, left : left + width].astype(np.float32)
        mean, std = (np.array(by_channel, np.float32) for by_channel in (self.mean, self.std))
        return (middle / np.float32(255) - mean) / std


@dataclass(frozen=True)
class Trained:
    source: Path
    graph: Graph
    state: State
    about: About

    def compile(self, batch: int, threads: int) -> Executable:
        return compile_graph(self.graph, self.state, batch, threads)

    def preparation(self, batch: int) -> Preparation:
        return Preparation(self.about.mean, self.about.std, self.graph.shape, batch)

    @property
    def stored_shape(self) -> Shape:
        """Of the samples it was trained on, before their middle was taken."""
        return self.about.stored or self.graph.shape

    @property
    def names(self) -> tuple[str, ...]:
        known = self.about.class_names
        return known if len(known) == self.graph.classes else tuple(map(str, range(self.graph.classes)))


def open_trained(source: Path, model: str | None = None) -> Trained:
    """`model` is needed where the file does not say what it is of, and for networks of the user's own."""
    kept = read_weights(source)
    name = model or _told(kept.about, source)
    graph = models.build(name, *_made_for(kept, name))
    state = State(graph, seed=0)
    try:
        from_state_dict(graph, state, kept.weights)
    except WeightsError as error:
        raise UsageError(f"{source}, read as {name}: {error}", remedy=OF_WHICH) from None
    return Trained(source, graph, state, _completed(kept.about, name, graph))


def read_weights(path: Path) -> Checkpoint:
    """Of a checkpoint, of anyone's safetensors, or of a .npz. Pickles are programs: they are not opened."""
    if path.suffix.lower() in PICKLES:
        convert = CONVERT.format(name=path.name, stem=path.stem)
        raise UsageError(f"{path} is a pickle, which could run anything: convert it first", remedy=convert)
    if path.suffix.lower() == ".npz":
        return Checkpoint(_npz(path))
    return read_checkpoint(path)


def _npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # noqa: BLE001 - zipfile, its decompressors and numpy raise anything on damaged files
        raise UsageError(
            f"{path} is no .npz file of plain arrays: {str(error) or type(error).__name__}",
            remedy="numpy.savez writes one of named arrays",
        ) from None


def _told(about: About, source: Path) -> str:
    if not about.model:
        raise UsageError(f"{source} does not say which network it is of", remedy=OF_WHICH)
    if models.is_custom(about.model):
        told = f"{source} is of a network of your own, {about.model}"
        raise UsageError(told, remedy=f"--model path/to/{about.model}")
    return about.model


def _made_for(kept: Checkpoint, name: str) -> tuple[int, Shape]:
    """Classes and image: as told, or as published with as many classes as the last layer has weights for."""
    published = models.model(name)
    if kept.about.classes is not None and kept.about.shape is not None:
        return kept.about.classes, kept.about.shape
    graph = models.build(name, published.classes, published.shape)
    head = next(node for node in reversed(graph.nodes) if node.parameters)
    weight = kept.weights.get(f"{head.name}.weight")
    return (len(weight) if weight is not None and weight.ndim else published.classes), published.shape


def _usually_stored(shape: Shape) -> Shape:
    """Of weights from elsewhere: networks made for ImageNet were judged by the middle 224 of 256 pixels, or as much of
    more; those for small images by all of them."""
    height, width, channels = shape
    if min(height, width) < CROPPED:
        return shape
    return round(height * STORED / CROPPED), round(width * STORED / CROPPED), channels


def _completed(about: About, name: str, graph: Graph) -> About:
    """What the file does not say: as torchvision's weights are for colours, else from -1 to 1."""
    channels = graph.shape[2]
    colours = channels == len(IMAGENET_MEAN)
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if colours else ((0.5,) * channels, (0.5,) * channels)
    return replace(
        about,
        model=Path(name).name,
        classes=graph.classes,
        shape=graph.shape,
        stored=about.stored or _usually_stored(graph.shape),
        mean=about.mean or mean,
        std=about.std or std,
    )
