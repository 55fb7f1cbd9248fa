from __future__ import annotations

import tracemalloc
import zlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phone_agent.contract import rng
from phone_agent.contract.errors import AgentError
from phone_agent.contract.schema import PartitionSlice
from phone_agent.data.augment import Augmenter
from phone_agent.data.sampling import (
    Normalizer,
    PartitionOrders,
    SampleOrder,
    Sampler,
    Union,
    partition_order,
    replicated_order,
    sampler,
)
from phone_agent.data.synthetic import Synthetic
from tests.phone_agent.phones import run_spec

SHAPE = (6, 5, 2)
BATCHES = st.lists(st.integers(1, 13), min_size=1, max_size=6)
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def taken_in(orders: list[SampleOrder], steps: int) -> list[int]:
    """The samples of all ranks, step by step, in rank order."""
    return [int(sample) for step in range(steps) for order in orders for sample in order.samples_at(step)[0]]


@PATIENT
@given(samples=st.integers(1, 60), batches=BATCHES, epochs=st.integers(1, 3))
def test_phones_together_use_every_sample_once_per_epoch(samples: int, batches: list[int], epochs: int) -> None:
    orders = [replicated_order(samples, batches, rank, seed=1) for rank in range(len(batches))]
    taken = taken_in(orders, -(-samples * epochs // sum(batches)))
    for epoch in range(epochs):
        assert sorted(taken[epoch * samples : (epoch + 1) * samples]) == list(range(samples))


@PATIENT
@given(samples=st.integers(1, 60), batches=BATCHES, other=BATCHES)
def test_order_does_not_depend_on_the_phones(samples: int, batches: list[int], other: list[int]) -> None:
    streams = []
    for each in (batches, other):
        orders = [replicated_order(samples, each, rank, seed=1) for rank in range(len(each))]
        streams.append(taken_in(orders, -(-100 // sum(each)))[:100])
    assert streams[0] == streams[1]


@PATIENT
@given(samples=st.integers(80, 200), batches=BATCHES)
def test_partitions_together_hold_every_sample_once_per_epoch(samples: int, batches: list[int]) -> None:
    taken: list[int] = []
    for rank in range(len(batches)):
        order = partition_order(samples, batches, PartitionSlice(rank, 0, batches[rank]), seed=1)
        size = order.end - order.first
        taken += taken_in([order], -(-size // order.batch))[:size]
    assert sorted(taken) == list(range(samples))


@PATIENT
@given(samples=st.integers(1, 60), batches=BATCHES, step=st.integers(0, 30), cuts=st.lists(st.integers(0, 13)))
def test_parts_make_up_the_batch(samples: int, batches: list[int], step: int, cuts: list[int]) -> None:
    order = replicated_order(samples, batches, len(batches) - 1, seed=1)
    edges = [order.offset + edge for edge in (0, *sorted(min(cut, order.batch) for cut in cuts), order.batch)]
    parts = [order.samples_at(step, slice(*edge))[0] for edge in pairwise(edges)]
    np.testing.assert_array_equal(np.concatenate(parts), order.samples_at(step)[0])


def test_order_depends_on_epoch_partition_and_seed() -> None:
    orders = [
        replicated_order(50, [50], 0, seed=1),
        replicated_order(50, [50], 0, seed=2),
        partition_order(100, [50, 50], PartitionSlice(0, 0, 50), seed=1),
    ]
    taken = [order.samples_at(0)[0] for order in orders] + [orders[0].samples_at(1)[0]]
    assert len({tuple(each) for each in taken}) == 4
    samples, epochs = replicated_order(50, [20], 0, seed=1).samples_at(2)
    assert epochs.tolist() == [0] * 10 + [1] * 10
    assert len(samples) == 20


def test_random_numbers_are_the_same_on_every_phone() -> None:
    assert rng.bits((1, 2), 2).tolist() == [16613338946343043936, 5167718485781182436]
    assert rng.permutation((7,), 8).tolist() == [5, 4, 2, 3, 1, 0, 7, 6]
    np.testing.assert_array_equal(rng.bits((3,), 5, start=4), rng.bits((3,), 9)[4:])
    np.testing.assert_array_equal(rng.bits_at((3,), np.array([8, 2])), rng.bits((3,), 9)[[8, 2]])


def test_synthetic_images_are_the_same_on_every_phone() -> None:
    images, labels = Synthetic(40, (9, 7, 3), 5, seed=3).take(np.array([4, 0, 17]))
    assert labels.tolist() == [4, 0, 2]
    assert zlib.crc32(images.data) == 3015514999


def test_held_out_images_differ_from_training_images() -> None:
    whole, _ = Synthetic(13, SHAPE, 4, seed=9).take(np.arange(13))
    rest, labels = Synthetic(3, SHAPE, 4, seed=9, first=10).take(np.arange(3))
    np.testing.assert_array_equal(rest, whole[10:])
    assert labels.tolist() == [2, 3, 0]


def test_synthetic_images_of_a_class_resemble_each_other() -> None:
    images, labels = Synthetic(200, (28, 28, 1), 5, seed=1).take(np.arange(200))
    means = np.stack([images[labels == label].mean(axis=0) for label in range(5)])
    distances = ((images[:, None].astype(float) - means[None]) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == labels).mean() > 0.95


def test_normalized_as_in_the_textbook() -> None:
    dataset = Synthetic(9, SHAPE, 4, seed=1)
    images, _ = dataset.take(np.arange(9))
    expected = (images / 255 - dataset.mean) / dataset.std
    np.testing.assert_allclose(Normalizer(dataset, 9).normalize(images), expected, atol=1e-5)
    cut = Normalizer(dataset, 9, (4, 3, 2)).normalize(images)
    np.testing.assert_allclose(cut, expected[:, 1:5, 1:4], atol=1e-5)


def test_batch_is_valid_until_the_next_but_one_is_prepared() -> None:
    dataset = Synthetic(64, SHAPE, 4, seed=1)
    source = Sampler(dataset, replicated_order(64, [8], 0, 1), Augmenter(dataset, SHAPE), SHAPE)
    first, second, third = (source.batch(step).images for step in range(3))
    assert not np.shares_memory(first, second)
    assert np.shares_memory(first, third)


def test_only_the_epochs_in_use_are_cached() -> None:
    """A permutation of a large dataset takes as much memory as a small network."""
    order = replicated_order(100_000, [1000], 0, seed=1)
    tracemalloc.start()
    for step in range(0, 64 * 100, 50):
        order.samples_at(step)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2.5 * order.samples_at(0)[0].itemsize * 100_000


@pytest.mark.parametrize("shares", [1, 5])
def test_permutation_of_an_epoch_is_computed_once(monkeypatch: pytest.MonkeyPatch, shares: int) -> None:
    """Even if a step crosses the end of an epoch, and if a phone uses slices of several partitions."""
    made: list[tuple[int, ...]] = []
    permutation = rng.permutation

    def counted(key: tuple[int, ...], size: int) -> NDArray[np.int64]:
        made.append(key)
        return permutation(key, size)

    monkeypatch.setattr(rng, "permutation", counted)
    turns = PartitionOrders(
        tuple(partition_order(500, [4] * shares, PartitionSlice(share, 0, 3), 1) for share in range(shares))
    )
    for step in range(1000):
        turns.samples_at(step)
    assert len(made) == len(set(made))


def test_phones_use_the_samples_of_one_process() -> None:
    spec = run_spec((2, 5, 1), data=replace(run_spec((1,)).data, augment="cifar"))
    alone = sampler(run_spec((8,), data=spec.data), 0)
    together = Union([sampler(spec, rank) for rank in range(3)])
    for step in (0, 3, 50):
        one, all_of_them = alone.batch(step), together.batch(step)
        np.testing.assert_array_equal(one.labels, all_of_them.labels)
        np.testing.assert_array_equal(one.images, all_of_them.images)


def test_images_with_another_number_of_channels_are_rejected() -> None:
    with pytest.raises(AgentError, match="the images have 2 channels, but the network expects 3"):
        Augmenter(Synthetic(4, SHAPE, 2, seed=0), (6, 5, 3))
