"""Which samples a phone takes at which step: known from (seed, step) alone, so a run can resume anywhere.

Epochs, each in a random order of its own, are put end to end. Where every phone has all samples, a step takes the next
so many of them and each rank its slice: every sample is taken once an epoch, whatever the number of phones, however
unequal their batches, and whichever of them takes which slice at which step. Where not all have all, each share (see
data.shares) is gone through in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract import rng
from phone_agent.contract.schema import PartitionSlice, RunSpec
from phone_agent.contract.sharding import is_replicated, partition_batches, partition_span, rank_slices
from phone_agent.contract.shards import Images, Labels
from phone_agent.core.thread_pool import aligned
from phone_agent.data import Dataset, open_dataset
from phone_agent.data.augment import Augmenter

ORDER = 3  # stream of random numbers; see data.synthetic for the others
ALL = slice(None)
EPOCHS_AT_ONCE = 2  # the end of one and the start of the next: 8 bytes a sample each, whatever a run's length

MakeArray = Callable[[int], NDArray[np.float32]]  # so many floats, zeroed


@dataclass(frozen=True)
class Batch:
    images: NDArray[np.float32]
    labels: Labels


class Source(Protocol):
    """`step` counts from 0; `part` is a slice of the step's samples, this rank's own at the start of the run unless
    given. Images are good until the next ones are asked for."""

    def batch(self, step: int, part: slice = ALL) -> Batch: ...

    def expect(self, parts: Sequence[slice]) -> None:
        """In which parts batches will be asked for from now on."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Order:
    """Samples `first` up to `end`, `stride` of them a step, of which those from `offset` on are `batch` of mine; unless
    a `part` of the step's is asked for."""

    first: int
    end: int
    batch: int
    offset: int
    stride: int
    key: tuple[int, ...]
    _epochs: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def taken(self, step: int, part: slice = ALL) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of samples, and the epoch each belongs to."""
        size = self.end - self.first
        start, stop = (self.offset, self.offset + self.batch) if part == ALL else (part.start, part.stop)
        positions = step * self.stride + np.arange(start, stop)
        epochs, places = np.divmod(positions, size)
        samples = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            samples[inside] = self.first + self._epoch(epoch)[places[inside]]
        return samples, epochs

    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        """Its permutation, kept as it has many steps. The one that was asked for first goes first."""
        if epoch not in self._epochs:
            if len(self._epochs) == EPOCHS_AT_ONCE:
                del self._epochs[next(iter(self._epochs))]
            self._epochs[epoch] = rng.permutation((*self.key, epoch), self.end - self.first)
        return self._epochs[epoch]


@dataclass(frozen=True)
class Turns:
    """A rank's parts of several shares, one after the other. `part` is of the rank's own batch."""

    orders: tuple[Order, ...]

    def taken(self, step: int, part: slice = ALL) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        samples, epochs = zip(*(order.taken(step) for order in self.orders), strict=True)
        return np.concatenate(samples)[part], np.concatenate(epochs)[part]


def whole_order(samples: int, batches: Sequence[int], rank: int, seed: int) -> Order:
    return Order(0, samples, batches[rank], sum(batches[:rank]), sum(batches), (seed, ORDER))


def share_order(samples: int, batches: Sequence[int], turn: PartitionSlice, seed: int) -> Order:
    """`batches` are the shares'."""
    first, end = partition_span(samples, batches, turn.partition)
    return Order(first, end, turn.end - turn.first, turn.first, batches[turn.partition], (seed, ORDER, turn.partition))


def order_of(spec: RunSpec, rank: int) -> Order | Turns:
    data, batches = spec.data, [each.batch for each in spec.ranks]
    if is_replicated(data):
        return whole_order(data.samples, batches, rank, spec.seed)
    shares = partition_batches(data, batches)
    turns = rank_slices(data, batches, rank)
    return Turns(tuple(share_order(data.samples, shares, turn, spec.seed) for turn in turns))


class Sampler:
    """One rank's batches, made when asked for; always in one of two places, so that a made one outlives the next."""

    def __init__(
        self,
        dataset: Dataset,
        order: Order | Turns,
        augmenter: Augmenter,
        image: tuple[int, int, int],
        array: MakeArray = aligned,
    ) -> None:
        self._dataset, self._order, self._augmenter, self._image = dataset, order, augmenter, image
        self._array = array
        self._rooms: list[NDArray[np.float32]] = []

    def batch(self, step: int, part: slice = ALL) -> Batch:
        samples, epochs = self._order.taken(step, part)
        images, labels = self._dataset.take(samples)
        out = self._room(len(samples))
        self._augmenter.change(images, epochs, samples, out)
        return Batch(out, labels)

    def expect(self, parts: Sequence[slice]) -> None:
        """It takes them as they come."""

    def close(self) -> None:
        self._augmenter.close()

    def _room(self, count: int) -> NDArray[np.float32]:
        """Grows to the largest part asked for."""
        size = count * prod(self._image)
        room = self._rooms.pop(0) if len(self._rooms) == 2 else self._array(size)
        if room.size < size:
            room = self._array(size)
        self._rooms.append(room)
        return room[:size].reshape(count, *self._image)


class Union:
    """All phones' batches as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def batch(self, step: int, part: slice = ALL) -> Batch:
        parts = [source.batch(step) for source in self._sources]
        fields: list[Any] = [[each.images for each in parts], [each.labels for each in parts]]
        images, labels = map(np.concatenate, fields)
        return Batch(images[part], labels[part])

    def expect(self, parts: Sequence[slice]) -> None:
        """It takes them as they come."""

    def close(self) -> None:
        for source in self._sources:
            source.close()


def sampler(spec: RunSpec, rank: int, dataset: Dataset | None = None, array: MakeArray = aligned) -> Sampler:
    """Not ahead of time: see prefetch.open_source."""
    data, batches = spec.data, [each.batch for each in spec.ranks]
    opened = open_dataset(data, spec.seed, batches, rank) if dataset is None else dataset
    augmenter = Augmenter(opened, data.input_shape, data.augment, spec.seed)
    return Sampler(opened, order_of(spec, rank), augmenter, data.input_shape, array)


class Normaliser:
    """The middle of images as they are, for judging: always into the same memory, which holds a batch."""

    def __init__(self, dataset: Dataset, batch: int, image: tuple[int, int, int] | None = None) -> None:
        self.batch, self._image = batch, image or dataset.shape
        self._augmenter = Augmenter(dataset, self._image)
        self._kept = aligned(batch * prod(self._image)).reshape(batch, *self._image)

    def normalize(self, images: Images) -> NDArray[np.float32]:
        normal = self._kept[: len(images)]
        self._augmenter.plain(images, normal)
        return normal
