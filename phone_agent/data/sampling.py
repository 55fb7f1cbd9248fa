"""Which samples each phone uses at each step. Depends on (seed, step) only, so a run can resume anywhere.

Epochs, each with its own random permutation, are concatenated. If every phone has all samples, a step uses the next
global batch of them and each rank its slice: every sample is used once per epoch, for any number of phones and any
split of the batch. If the data is sharded, each partition (see contract.sharding) is traversed in the same way.
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

ORDER_STREAM = 3  # of random numbers; see data.synthetic for the others
ALL = slice(None)
CACHED_EPOCHS = 2  # the current and the next permutation: 8 bytes per sample each

MakeArray = Callable[[int], NDArray[np.float32]]  # allocates that many zeroed floats


@dataclass(frozen=True)
class Batch:
    images: NDArray[np.float32]
    labels: Labels


class Source(Protocol):
    """`step` counts from 0. `part` is a slice of the samples of the step; default: the initial slice of this rank.
    Images are valid until the next call."""

    def batch(self, step: int, part: slice = ALL) -> Batch: ...

    def expect(self, parts: Sequence[slice]) -> None:
        """Announces the parts in which batches will be requested from now on."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class SampleOrder:
    """Samples `first` to `end`, `stride` of them per step. This rank uses `batch` of those, from `offset` on, unless a
    `part` of the step is requested."""

    first: int
    end: int
    batch: int
    offset: int
    stride: int
    key: tuple[int, ...]
    _epochs: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def samples_at(self, step: int, part: slice = ALL) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sample numbers and the epoch of each."""
        size = self.end - self.first
        start, stop = (self.offset, self.offset + self.batch) if part == ALL else (part.start, part.stop)
        positions = step * self.stride + np.arange(start, stop)
        epochs, indices = np.divmod(positions, size)
        samples = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs).tolist():
            in_epoch = epochs == epoch
            samples[in_epoch] = self.first + self._epoch(epoch)[indices[in_epoch]]
        return samples, epochs

    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        """The permutation of an epoch, cached; the oldest is dropped."""
        if epoch not in self._epochs:
            if len(self._epochs) == CACHED_EPOCHS:
                del self._epochs[next(iter(self._epochs))]
            self._epochs[epoch] = rng.permutation((*self.key, epoch), self.end - self.first)
        return self._epochs[epoch]


@dataclass(frozen=True)
class PartitionOrders:
    """The slices of a rank in several partitions, concatenated. `part` is a slice of the batch of this rank."""

    orders: tuple[SampleOrder, ...]

    def samples_at(self, step: int, part: slice = ALL) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        samples, epochs = zip(*(order.samples_at(step) for order in self.orders), strict=True)
        return np.concatenate(samples)[part], np.concatenate(epochs)[part]


def replicated_order(samples: int, batches: Sequence[int], rank: int, seed: int) -> SampleOrder:
    return SampleOrder(0, samples, batches[rank], sum(batches[:rank]), sum(batches), (seed, ORDER_STREAM))


def partition_order(samples: int, batches: Sequence[int], own: PartitionSlice, seed: int) -> SampleOrder:
    """`batches`: per partition."""
    first, end = partition_span(samples, batches, own.partition)
    return SampleOrder(
        first, end, own.end - own.first, own.first, batches[own.partition], (seed, ORDER_STREAM, own.partition)
    )


def sample_order(spec: RunSpec, rank: int) -> SampleOrder | PartitionOrders:
    data, batches = spec.data, [each.batch for each in spec.ranks]
    if is_replicated(data):
        return replicated_order(data.samples, batches, rank, spec.seed)
    per_partition = partition_batches(data, batches)
    slices = rank_slices(data, batches, rank)
    return PartitionOrders(tuple(partition_order(data.samples, per_partition, own, spec.seed) for own in slices))


class Sampler:
    """The batches of one rank, prepared on request in one of two alternating buffers."""

    def __init__(
        self,
        dataset: Dataset,
        order: SampleOrder | PartitionOrders,
        augmenter: Augmenter,
        image: tuple[int, int, int],
        array: MakeArray = aligned,
    ) -> None:
        self._dataset, self._order, self._augmenter, self._image = dataset, order, augmenter, image
        self._array = array
        self._buffers: list[NDArray[np.float32]] = []

    def batch(self, step: int, part: slice = ALL) -> Batch:
        samples, epochs = self._order.samples_at(step, part)
        images, labels = self._dataset.take(samples)
        out = self._buffer(len(samples))
        self._augmenter.augment(images, epochs, samples, out)
        return Batch(out, labels)

    def expect(self, parts: Sequence[slice]) -> None:
        """Batches are prepared on request."""

    def close(self) -> None:
        self._augmenter.close()

    def _buffer(self, count: int) -> NDArray[np.float32]:
        """Grows to the largest part requested."""
        size = count * prod(self._image)
        buffer = self._buffers.pop(0) if len(self._buffers) == 2 else self._array(size)
        if buffer.size < size:
            buffer = self._array(size)
        self._buffers.append(buffer)
        return buffer[:size].reshape(count, *self._image)


class Union:
    """The batches of all phones, concatenated."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def batch(self, step: int, part: slice = ALL) -> Batch:
        parts = [source.batch(step) for source in self._sources]
        fields: list[Any] = [[each.images for each in parts], [each.labels for each in parts]]
        images, labels = map(np.concatenate, fields)
        return Batch(images[part], labels[part])

    def expect(self, parts: Sequence[slice]) -> None:
        """Batches are prepared on request."""

    def close(self) -> None:
        for source in self._sources:
            source.close()


def sampler(spec: RunSpec, rank: int, dataset: Dataset | None = None, array: MakeArray = aligned) -> Sampler:
    """Without prefetching: see prefetch.open_source."""
    data, batches = spec.data, [each.batch for each in spec.ranks]
    opened = open_dataset(data, spec.seed, batches, rank) if dataset is None else dataset
    augmenter = Augmenter(opened, data.input_shape, data.augment, spec.seed)
    return Sampler(opened, sample_order(spec, rank), augmenter, data.input_shape, array)


class Normalizer:
    """Center crops for evaluation, always in the same buffer of one batch."""

    def __init__(self, dataset: Dataset, batch: int, image: tuple[int, int, int] | None = None) -> None:
        self.batch, self._image = batch, image or dataset.shape
        self._augmenter = Augmenter(dataset, self._image)
        self._buffer = aligned(batch * prod(self._image)).reshape(batch, *self._image)

    def normalize(self, images: Images) -> NDArray[np.float32]:
        normalized = self._buffer[: len(images)]
        self._augmenter.normalize(images, normalized)
        return normalized
