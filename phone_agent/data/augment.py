"""Image augmentation: parameters are drawn here, the core applies them.

The parameters depend only on (seed, epoch, sample), so they are the same on every phone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract import rng
from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.shards import Images
from phone_agent.core import ops
from phone_agent.core.ops import Kind
from phone_agent.core.thread_pool import Program, ThreadPool, workspace_bytes
from phone_agent.data import Dataset

AUGMENT_STREAM = 6  # of random numbers; see data.synthetic and data.sampling for the others
DRAWS = 16  # random numbers per sample
TOP, LEFT, FLIP, AREA, RATIO, BRIGHTNESS, CONTRAST, SATURATION, LIGHT = range(9)  # index of each draw; LIGHT: six
PADDING = 4  # of CIFAR crops, as in He et al. 2015
MIN_AREA, MAX_ASPECT_RATIO = 0.08, 4 / 3  # of ImageNet crops, as in Szegedy et al. 2014
JITTER = 0.4  # brightness, contrast and saturation times 0.6 .. 1.4, as in Howard 2013
GRAY = np.array([0.299, 0.587, 0.114])
# PCA of the colors of natural images, scaled by standard deviation: Krizhevsky et al. 2012.
LIGHTING = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
LIGHTING *= np.array([0.2175, 0.0188, 0.0045]) * 0.1

Draws = NDArray[np.float64]  # one row per sample, in [0, 1)
Crops = NDArray[np.int32]  # one row per sample: top, left, height, width, flip


@dataclass(frozen=True)
class Sizes:
    """Height and width of stored images and of the network input."""

    stored: tuple[int, int]
    input: tuple[int, int]


def center_crops(sizes: Sizes, count: int) -> Crops:
    crops = np.zeros((count, 6), np.int32)
    for axis in (0, 1):
        crops[:, axis] = (sizes.stored[axis] - sizes.input[axis]) // 2
        crops[:, 2 + axis] = sizes.input[axis]
    return crops


def _none(sizes: Sizes, draws: Draws) -> Crops:
    return center_crops(sizes, len(draws))


def _flip(sizes: Sizes, draws: Draws) -> Crops:
    crops = center_crops(sizes, len(draws))
    crops[:, 4] = draws[:, FLIP] < 0.5
    return crops


def _cifar(sizes: Sizes, draws: Draws) -> Crops:
    """A random crop of the image, padded with 4 black pixels."""
    crops = _flip(sizes, draws)
    for axis, draw in ((0, TOP), (1, LEFT)):
        margin = sizes.stored[axis] - sizes.input[axis] + 2 * PADDING
        crops[:, axis] = np.floor(draws[:, draw] * (margin + 1)) - PADDING
    return crops


def _imagenet(sizes: Sizes, draws: Draws) -> Crops:
    """A random resized crop, clipped to the image."""
    crops = _flip(sizes, draws)
    area = (MIN_AREA + (1 - MIN_AREA) * draws[:, AREA]) * np.prod(sizes.stored)
    ratio = MAX_ASPECT_RATIO ** (2 * draws[:, RATIO] - 1)
    side_lengths = (np.sqrt(area / ratio), np.sqrt(area * ratio))
    for axis, draw in ((0, TOP), (1, LEFT)):
        side = np.clip(np.rint(side_lengths[axis]), 1, sizes.stored[axis])
        crops[:, 2 + axis] = side
        crops[:, axis] = np.floor(draws[:, draw] * (sizes.stored[axis] - side + 1))
    return crops


def _color_matrices(draws: Draws, mean: NDArray[Any]) -> NDArray[np.float32]:
    """Brightness, contrast (relative to the mean gray), saturation and lighting noise: a 3 x 4 matrix per sample."""
    factors = 1 + JITTER * (2 * draws[:, BRIGHTNESS : SATURATION + 1] - 1)
    bright, contrast, saturation = (column[:, None, None] for column in factors.T)
    mixed = saturation * np.eye(3) + (1 - saturation) * GRAY
    pivot = (1 - contrast) * (GRAY @ mean)
    # Approximately normal: the sum of two uniform numbers, with unit variance.
    light = (draws[:, LIGHT : LIGHT + 3] + draws[:, LIGHT + 3 : LIGHT + 6] - 1) * np.sqrt(6) @ LIGHTING.T
    constant = (mixed @ np.ones((3, 1))) * pivot + light[:, :, None]
    return np.concatenate([bright * contrast * mixed, constant], axis=2).astype(np.float32)


@dataclass(frozen=True)
class Recipe:
    crops: Callable[[Sizes, Draws], Crops]
    colors: bool = False


RECIPES = {
    "none": Recipe(_none),
    "flip": Recipe(_flip),
    "cifar": Recipe(_cifar),
    "imagenet": Recipe(_imagenet, colors=True),
}


def recipe(name: str) -> Recipe:
    try:
        return RECIPES[name]
    except KeyError:
        known = ", ".join(RECIPES)
        raise BadRequestError(f"unknown augmentation '{name}'; choose from: {known}") from None


class Augmenter:
    """Converts stored images to network input, in a separate thread of the core."""

    def __init__(self, dataset: Dataset, image: tuple[int, int, int], name: str = "none", seed: int = 0) -> None:
        (height, width, channels), (out_height, out_width, out_channels) = dataset.shape, image
        if out_channels != channels:
            raise BadRequestError(f"the images have {channels} channels, but the network expects {out_channels}")
        self._sizes = Sizes((height, width), (out_height, out_width))
        self._recipe, self._seed = recipe(name), seed
        self._mean = np.ascontiguousarray(dataset.mean, np.float32)
        self._inv_std = np.ascontiguousarray(1 / dataset.std, np.float32)
        self._shapes = {
            "in_h": height, "in_w": width, "out_h": out_height, "out_w": out_width, "channels": channels,
        }  # fmt: skip
        self._pool = ThreadPool(1, workspace_bytes=workspace_bytes(1, [(Kind.AUGMENT, ops.Augment(**self._shapes))]))

    def augment(
        self, images: Images, epochs: NDArray[np.int64], samples: NDArray[np.int64], out: NDArray[np.float32]
    ) -> None:
        draws = self._draws(epochs, samples)
        colored = self._recipe.colors and images.shape[3] == 3
        colors = _color_matrices(draws, self._mean) if colored else None
        self._run(images, self._recipe.crops(self._sizes, draws), colors, out)

    def normalize(self, images: Images, out: NDArray[np.float32]) -> None:
        """The center crop, not augmented."""
        self._run(images, center_crops(self._sizes, len(images)), None, out)

    def _draws(self, epochs: NDArray[np.int64], samples: NDArray[np.int64]) -> Draws:
        draws = np.empty((len(samples), DRAWS))
        for epoch in np.unique(epochs).tolist():
            in_epoch = epochs == epoch
            positions = samples[in_epoch][:, None] * DRAWS + np.arange(DRAWS)
            draws[in_epoch] = rng.uniform_at((self._seed, AUGMENT_STREAM, epoch), positions)
        return draws

    def _run(self, images: Images, crops: Crops, colors: NDArray[np.float32] | None, out: NDArray[np.float32]) -> None:
        images, crops = np.ascontiguousarray(images), np.ascontiguousarray(crops)
        op = ops.Augment(
            images=images.ctypes.data, crops=crops.ctypes.data, mean=self._mean.ctypes.data,
            color_matrices=None if colors is None else colors.ctypes.data, inv_std=self._inv_std.ctypes.data,
            out=out.ctypes.data, batch=len(images), **self._shapes,
        )  # fmt: skip
        self._pool.run(Program.of([(Kind.AUGMENT, op)]))

    def close(self) -> None:
        self._pool.close()
