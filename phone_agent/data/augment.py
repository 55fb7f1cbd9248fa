"""What is changed about an image before it is learned from: chosen here, done in the core.

Every choice follows from (seed, epoch, sample), so it is the same whichever phone takes the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract import rng
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.shards import Images
from phone_agent.core import ops
from phone_agent.core.ops import Kind
from phone_agent.core.thread_pool import Program, ThreadPool, workspace_bytes
from phone_agent.data import Dataset

CHOICES = 6  # stream of random numbers; see data.synthetic and data.sampling for the others
DRAWS = 16  # numbers a sample may use
TOP, LEFT, FLIP, AREA, RATIO, BRIGHTNESS, CONTRAST, SATURATION, LIGHT = range(9)  # which of them for what; LIGHT: 3
PADDING = 4  # of CIFAR's crops, as in He et al. 2015
SMALLEST_AREA, WIDEST = 0.08, 4 / 3  # of ImageNet's crops, as in Szegedy et al. 2014
JITTER = 0.4  # brightness, contrast and saturation times 0.6 .. 1.4, as in Howard 2013
GREY = np.array([0.299, 0.587, 0.114])
# Directions in which the colours of natural images vary, each as long as they do: Krizhevsky et al. 2012.
LIGHTING = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
LIGHTING *= np.array([0.2175, 0.0188, 0.0045]) * 0.1

Draws = NDArray[np.float64]  # one row a sample, in [0, 1)
Views = NDArray[np.int32]  # one row a sample: core.ops.View


class UnknownAugmentationError(AgentError):
    code = ErrorCode.BAD_REQUEST


@dataclass(frozen=True)
class Sizes:
    """Height and width, as stored and as the network reads them."""

    stored: tuple[int, int]
    read: tuple[int, int]


def centred(sizes: Sizes, count: int) -> Views:
    views = np.zeros((count, 6), np.int32)
    for axis in (0, 1):
        views[:, axis] = (sizes.stored[axis] - sizes.read[axis]) // 2
        views[:, 2 + axis] = sizes.read[axis]
    return views


def _none(sizes: Sizes, draws: Draws) -> Views:
    return centred(sizes, len(draws))


def _flip(sizes: Sizes, draws: Draws) -> Views:
    views = centred(sizes, len(draws))
    views[:, 4] = draws[:, FLIP] < 0.5
    return views


def _cifar(sizes: Sizes, draws: Draws) -> Views:
    """Anywhere in the image with 4 pixels of black around it."""
    views = _flip(sizes, draws)
    for axis, draw in ((0, TOP), (1, LEFT)):
        room = sizes.stored[axis] - sizes.read[axis] + 2 * PADDING
        views[:, axis] = np.floor(draws[:, draw] * (room + 1)) - PADDING
    return views


def _imagenet(sizes: Sizes, draws: Draws) -> Views:
    """A part of the image, of any size and nearly any proportions, cut to what lies in it."""
    views = _flip(sizes, draws)
    area = (SMALLEST_AREA + (1 - SMALLEST_AREA) * draws[:, AREA]) * np.prod(sizes.stored)
    ratio = WIDEST ** (2 * draws[:, RATIO] - 1)
    wanted = (np.sqrt(area / ratio), np.sqrt(area * ratio))
    for axis, draw in ((0, TOP), (1, LEFT)):
        side = np.clip(np.rint(wanted[axis]), 1, sizes.stored[axis])
        views[:, 2 + axis] = side
        views[:, axis] = np.floor(draws[:, draw] * (sizes.stored[axis] - side + 1))
    return views


def _colours(draws: Draws, mean: NDArray[Any]) -> NDArray[np.float32]:
    """Brightness, contrast (away from the dataset's grey) and saturation, and some light: 3 x 4 a sample."""
    factors = 1 + JITTER * (2 * draws[:, BRIGHTNESS : SATURATION + 1] - 1)
    bright, contrast, saturation = (column[:, None, None] for column in factors.T)
    mixed = saturation * np.eye(3) + (1 - saturation) * GREY
    pivot = (1 - contrast) * (GREY @ mean)
    # Normal enough: the sum of two uniform numbers, as wide.
    light = (draws[:, LIGHT : LIGHT + 3] + draws[:, LIGHT + 3 : LIGHT + 6] - 1) * np.sqrt(6) @ LIGHTING.T
    constant = (mixed @ np.ones((3, 1))) * pivot + light[:, :, None]
    return np.concatenate([bright * contrast * mixed, constant], axis=2).astype(np.float32)


@dataclass(frozen=True)
class Recipe:
    views: Callable[[Sizes, Draws], Views]
    colours: bool = False


RECIPES = {
    "none": Recipe(_none),
    "flip": Recipe(_flip),
    "cifar": Recipe(_cifar),
    "imagenet": Recipe(_imagenet, colours=True),
}


def recipe(name: str) -> Recipe:
    try:
        return RECIPES[name]
    except KeyError:
        known = ", ".join(RECIPES)
        raise UnknownAugmentationError(f"there is no augmentation called '{name}'; there are: {known}") from None


class Augmenter:
    """Bytes to what a network reads, by a thread of its own in the core."""

    def __init__(self, dataset: Dataset, image: tuple[int, int, int], name: str = "none", seed: int = 0) -> None:
        (height, width, channels), (out_height, out_width, out_channels) = dataset.shape, image
        if out_channels != channels:
            raise AgentError(
                f"images of {channels} channels, but the network reads {out_channels}", code=ErrorCode.BAD_REQUEST
            )
        self._sizes = Sizes((height, width), (out_height, out_width))
        self._recipe, self._seed = recipe(name), seed
        self._mean = np.ascontiguousarray(dataset.mean, np.float32)
        self._inv_std = np.ascontiguousarray(1 / dataset.std, np.float32)
        self._shapes = {
            "in_h": height, "in_w": width, "out_h": out_height, "out_w": out_width, "channels": channels,
        }  # fmt: skip
        self._pool = ThreadPool(1, workspace_bytes=workspace_bytes(1, [(Kind.AUGMENT, ops.Augment(**self._shapes))]))

    def change(
        self, images: Images, epochs: NDArray[np.int64], samples: NDArray[np.int64], out: NDArray[np.float32]
    ) -> None:
        draws = self._draws(epochs, samples)
        coloured = self._recipe.colours and images.shape[3] == 3
        colours = _colours(draws, self._mean) if coloured else None
        self._run(images, self._recipe.views(self._sizes, draws), colours, out)

    def plain(self, images: Images, out: NDArray[np.float32]) -> None:
        """The middle of each, as it is."""
        self._run(images, centred(self._sizes, len(images)), None, out)

    def _draws(self, epochs: NDArray[np.int64], samples: NDArray[np.int64]) -> Draws:
        draws = np.empty((len(samples), DRAWS))
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            places = samples[inside][:, None] * DRAWS + np.arange(DRAWS)
            draws[inside] = rng.uniform_at((self._seed, CHOICES, epoch), places)
        return draws

    def _run(self, images: Images, views: Views, colours: NDArray[np.float32] | None, out: NDArray[np.float32]) -> None:
        images, views = np.ascontiguousarray(images), np.ascontiguousarray(views)
        op = ops.Augment(
            images=images.ctypes.data, crops=views.ctypes.data, mean=self._mean.ctypes.data,
            color_matrices=None if colours is None else colours.ctypes.data, inv_std=self._inv_std.ctypes.data,
            out=out.ctypes.data, batch=len(images), **self._shapes,
        )  # fmt: skip
        self._pool.run(Program.of([(Kind.AUGMENT, op)]))

    def close(self) -> None:
        self._pool.close()
