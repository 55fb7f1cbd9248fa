"""Images made up from a seed: each class is a coarse pattern, each sample the pattern of its class under noise.

Sample i is the same whoever makes it, so no phone needs anything staged. Noise is drawn once; a sample's is a part of
it, from a place of its own: an image costs two passes over its bytes, far less than to train on it.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract import rng
from phone_agent.contract.shards import Images, Labels

CELLS = 4  # a pattern is CELLS x CELLS squares
MEAN, STD = 0.5, 0.25
PATTERN_SHARE = 0.35  # the rest is noise; together at most 255
PATTERNS, NOISE, PLACES = 1, 2, 5  # streams of random numbers
NOISE_PLACES = 1 << 20


class Synthetic:
    def __init__(self, samples: int, shape: tuple[int, int, int], classes: int, *, seed: int, first: int = 0) -> None:
        """Samples `first` and following of an endless dataset."""
        self.shape, self.classes = shape, classes
        self.class_names = tuple(map(str, range(classes)))
        self.mean = np.full(shape[2], MEAN, np.float32)
        self.std = np.full(shape[2], STD, np.float32)
        self.damaged = ()
        self._samples, self._seed, self._first = samples, seed, first
        cells = rng.bits((seed, PATTERNS), -(-classes * CELLS * CELLS * shape[2] // 8)).view(np.uint8)
        cells = cells[: classes * CELLS * CELLS * shape[2]].reshape(classes, CELLS, CELLS, shape[2])
        self._cells = (cells * PATTERN_SHARE).astype(np.uint8)
        noise = rng.bits((seed, NOISE), -(-(NOISE_PLACES + prod(shape)) // 8)).view(np.uint8)
        self._noise = (noise * np.float32(1 - PATTERN_SHARE)).astype(np.uint8)

    def __len__(self) -> int:
        return self._samples

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]:
        numbers = indices + self._first
        labels = numbers % self.classes
        places = (rng.bits_at((self._seed, PLACES), numbers) % np.uint64(NOISE_PLACES)).astype(np.int64)
        images = np.empty((len(numbers), *self.shape), np.uint8)
        size = prod(self.shape)
        for image, place, label in zip(images, places.tolist(), labels.tolist(), strict=True):
            np.add(self._drawn(label), self._noise[place : place + size].reshape(self.shape), out=image)
        return images, labels

    def _drawn(self, label: int) -> Images:
        """The pattern in full size: made when wanted, since those of 1000 classes are large."""
        height, width, _ = self.shape
        rows, columns = np.arange(height) * CELLS // height, np.arange(width) * CELLS // width
        pattern: Images = self._cells[label].take(columns, axis=1).take(rows, axis=0)
        return pattern
