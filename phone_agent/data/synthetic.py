"""Images made up from a seed: each class is a coarse pattern, each sample the pattern of its class under noise.

Sample i is the same whoever makes it, so no phone needs anything staged.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from phone_agent import rng
from phone_agent.data import Images, Labels

CELLS = 4  # a pattern is CELLS x CELLS squares
MEAN, STD = 0.5, 0.25
PATTERNS, NOISE = 1, 2  # streams of random numbers


class Synthetic:
    def __init__(
        self, samples: int, shape: tuple[int, int, int], classes: int, *, seed: int, index: int = 0, count: int = 1
    ) -> None:
        self.shape, self.classes = shape, classes
        self.mean = np.full(shape[2], MEAN, np.float32)
        self.std = np.full(shape[2], STD, np.float32)
        self._seed, self._index, self._count = seed, index, count
        self._samples = len(range(index, samples, count))
        self._cells = np.stack([self._pattern(label) for label in range(classes)])

    def __len__(self) -> int:
        return self._samples

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]:
        numbers = indices * self._count + self._index
        labels = numbers % self.classes
        images = np.empty((len(numbers), *self.shape), np.uint8)
        for image, number, label in zip(images, numbers.tolist(), labels.tolist(), strict=True):
            image[...] = self._drawn(label) * 0.35 + self._noise(number) * 0.65
        return images, labels

    def _drawn(self, label: int) -> NDArray[np.float32]:
        """The pattern in full size: made when wanted, since those of 1000 classes are large."""
        height, width, _ = self.shape
        rows, columns = np.arange(height) * CELLS // height, np.arange(width) * CELLS // width
        pattern: NDArray[np.float32] = self._cells[label][rows][:, columns]
        return pattern

    def _pattern(self, label: int) -> NDArray[np.float32]:
        channels = self.shape[2]
        cells = rng.uniform((self._seed, PATTERNS, label), CELLS * CELLS * channels).reshape(CELLS, CELLS, channels)
        return (cells * 255).astype(np.float32)

    def _noise(self, number: int) -> NDArray[np.float32]:
        size = prod(self.shape)
        bytes_needed = rng.bits((self._seed, NOISE), -(-size // 8), start=number * -(-size // 8)).view(np.uint8)
        return bytes_needed[:size].reshape(self.shape).astype(np.float32)
