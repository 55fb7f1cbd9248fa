"""Synthetic images from a seed: each class is a coarse pattern, each sample the pattern of its class plus noise.

Sample i is the same on every phone, so nothing needs to be staged. Noise is generated once and each sample uses a slice
of it at its own offset: an image takes two passes over its bytes, far less than training on it.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract import rng
from phone_agent.contract.shards import Images, Labels

CELLS = 4  # a pattern is CELLS x CELLS squares
MEAN, STD = 0.5, 0.25
PATTERN_WEIGHT = 0.35  # the rest is noise; the sum is at most 255
PATTERNS, NOISE, OFFSETS = 1, 2, 5  # streams of random numbers
NOISE_OFFSETS = 1 << 20


class Synthetic:
    def __init__(self, samples: int, shape: tuple[int, int, int], classes: int, *, seed: int, first: int = 0) -> None:
        """Samples `first` and following of an infinite dataset."""
        self.shape, self.classes = shape, classes
        self.class_names = tuple(map(str, range(classes)))
        self.mean = np.full(shape[2], MEAN, np.float32)
        self.std = np.full(shape[2], STD, np.float32)
        self.damaged = ()
        self._samples, self._seed, self._first = samples, seed, first
        cells = rng.bits((seed, PATTERNS), -(-classes * CELLS * CELLS * shape[2] // 8)).view(np.uint8)
        cells = cells[: classes * CELLS * CELLS * shape[2]].reshape(classes, CELLS, CELLS, shape[2])
        self._cells = (cells * PATTERN_WEIGHT).astype(np.uint8)
        noise = rng.bits((seed, NOISE), -(-(NOISE_OFFSETS + prod(shape)) // 8)).view(np.uint8)
        self._noise = (noise * np.float32(1 - PATTERN_WEIGHT)).astype(np.uint8)

    def __len__(self) -> int:
        return self._samples

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]:
        numbers = indices + self._first
        labels = numbers % self.classes
        offsets = (rng.bits_at((self._seed, OFFSETS), numbers) % np.uint64(NOISE_OFFSETS)).astype(np.int64)
        images = np.empty((len(numbers), *self.shape), np.uint8)
        size = prod(self.shape)
        for image, offset, label in zip(images, offsets.tolist(), labels.tolist(), strict=True):
            np.add(self._pattern(label), self._noise[offset : offset + size].reshape(self.shape), out=image)
        return images, labels

    def _pattern(self, label: int) -> Images:
        """The pattern in full size, generated on demand: those of 1000 classes are large."""
        height, width, _ = self.shape
        rows, columns = np.arange(height) * CELLS // height, np.arange(width) * CELLS // width
        pattern: Images = self._cells[label].take(columns, axis=1).take(rows, axis=0)
        return pattern
