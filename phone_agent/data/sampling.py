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


def normalise(images: Images, dataset: Dataset) -> NDArray[np.float32]:
    """Bytes to zero mean and unit deviation, channel by channel."""
    scale = 1 / (255 * dataset.std)
    normal: NDArray[np.float32] = images.astype(np.float32) * scale - dataset.mean / dataset.std
    return normal


class ShardSource:
    """One phone's batches."""

    def __init__(self, dataset: Dataset, batch: int, seed: int, index: int) -> None:
        self.dataset = dataset
        self._batch, self._key = batch, (seed, ORDER, index)

    def batch(self, step: int) -> Batch:
        images, labels = self.dataset.take(indices(len(self.dataset), self._batch, step, self._key))
        return Batch(normalise(images, self.dataset), labels)


class Union:
    """All phones' batches as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def batch(self, step: int) -> Batch:
        parts = [source.batch(step) for source in self._sources]
        fields: list[Any] = [[part.images for part in parts], [part.labels for part in parts]]
        return Batch(*map(np.concatenate, fields))
