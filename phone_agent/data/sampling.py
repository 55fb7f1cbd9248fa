"""Which samples a phone takes at which step: known from (seed, shard, step) alone, so a run can resume anywhere.

A phone goes through its own shard in a new random order each epoch; a batch may span two epochs. The global batch of
a step is the phones' batches side by side, and `Union` is the one process that takes them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent import rng
from phone_agent.data import Dataset, Images, Labels

ORDER = 3  # stream of random numbers; see data.synthetic for the others


@dataclass(frozen=True)
class Batch:
    images: NDArray[np.float32]
    labels: Labels


class Source(Protocol):
    def batch(self, step: int) -> Batch: ...


def indices(size: int, batch: int, step: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Positions in a shard of `size` samples, at a step (from 0) of `batch` samples."""
    positions = np.arange(step * batch, (step + 1) * batch)
    chosen = np.empty(batch, np.int64)
    for epoch in np.unique(positions // size):
        inside = positions // size == epoch
        chosen[inside] = _order((*key, int(epoch)), size)[positions[inside] % size]
    return chosen


@lru_cache(maxsize=2)  # an epoch has many steps
def _order(key: tuple[int, ...], size: int) -> NDArray[np.int64]:
    return rng.permutation(key, size)


class Normaliser:
    """Bytes to zero mean and unit deviation, channel by channel; always into the same memory, which holds a batch.

    What it returns is good until it is asked again: memory is planned for one batch of images, not for two.
    """

    def __init__(self, dataset: Dataset, batch: int) -> None:
        self.batch = batch
        self._scale, self._shift = 1 / (255 * dataset.std), dataset.mean / dataset.std
        self._kept = np.empty((batch, *dataset.shape), np.float32)

    def normalise(self, images: Images) -> NDArray[np.float32]:
        normal = self._kept[: len(images)]
        np.multiply(images, self._scale, out=normal)
        normal -= self._shift
        return normal


class ShardSource:
    """One phone's batches; the images of one are good until the next is asked for."""

    def __init__(self, dataset: Dataset, batch: int, seed: int, index: int) -> None:
        self.dataset, self.normaliser = dataset, Normaliser(dataset, batch)
        self._batch, self._key = batch, (seed, ORDER, index)

    def batch(self, step: int) -> Batch:
        images, labels = self.dataset.take(indices(len(self.dataset), self._batch, step, self._key))
        return Batch(self.normaliser.normalise(images), labels)


class Union:
    """All phones' batches as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def batch(self, step: int) -> Batch:
        parts = [source.batch(step) for source in self._sources]
        fields: list[Any] = [[part.images for part in parts], [part.labels for part in parts]]
        return Batch(*map(np.concatenate, fields))
