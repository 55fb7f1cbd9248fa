from __future__ import annotations

import tracemalloc
import zlib

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phone_agent import rng
from phone_agent.data.sampling import Normaliser, ShardSource, Union, indices
from phone_agent.data.synthetic import Synthetic

SHAPE = (6, 5, 2)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(size=st.integers(1, 40), batch=st.integers(1, 60), epochs=st.integers(1, 3))
def test_an_epoch_takes_every_sample_once(size: int, batch: int, epochs: int) -> None:
    steps = -(-size * epochs // batch)
    taken = np.concatenate([indices(size, batch, step, (1, 2)) for step in range(steps)])
    for epoch in range(epochs):
        assert sorted(taken[epoch * size : (epoch + 1) * size]) == list(range(size))


def test_epochs_and_shards_have_orders_of_their_own() -> None:
    first, second = indices(50, 50, 0, (1, 0)), indices(50, 50, 1, (1, 0))
    other_shard, other_seed = indices(50, 50, 0, (1, 1)), indices(50, 50, 0, (2, 0))
    orders = {tuple(order) for order in (first, second, other_shard, other_seed)}
    assert len(orders) == 4


def test_random_numbers_are_these_on_every_phone() -> None:
    assert rng.bits((1, 2), 2).tolist() == [16613338946343043936, 5167718485781182436]
    assert rng.permutation((7,), 8).tolist() == [5, 4, 2, 3, 1, 0, 7, 6]
    np.testing.assert_array_equal(rng.bits((3,), 5, start=4), rng.bits((3,), 9)[4:])


def test_phones_make_up_the_same_samples_as_one_process() -> None:
    whole = Synthetic(13, SHAPE, 4, seed=9)
    images, labels = whole.take(np.arange(13))
    for index in range(3):
        part = Synthetic(13, SHAPE, 4, seed=9, index=index, count=3)
        part_images, part_labels = part.take(np.arange(len(part)))
        np.testing.assert_array_equal(part_images, images[index::3])
        np.testing.assert_array_equal(part_labels, labels[index::3])


def test_made_up_images_are_these_on_every_phone() -> None:
    images, labels = Synthetic(40, (9, 7, 3), 5, seed=3, index=1, count=2).take(np.array([4, 0, 17]))
    assert labels.tolist() == [4, 1, 0]
    assert zlib.crc32(images.data) == 248710461


def test_synthetic_images_of_a_class_resemble_each_other() -> None:
    images, labels = Synthetic(200, (28, 28, 1), 5, seed=1).take(np.arange(200))
    means = np.stack([images[labels == label].mean(axis=0) for label in range(5)])
    distances = ((images[:, None].astype(float) - means[None]) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == labels).mean() > 0.95


def test_normalised_as_in_the_textbook() -> None:
    dataset = Synthetic(9, SHAPE, 4, seed=1)
    images, _ = dataset.take(np.arange(9))
    expected = images.astype(np.float32) * (1 / (255 * dataset.std)) - dataset.mean / dataset.std
    np.testing.assert_array_equal(Normaliser(dataset, 9).normalise(images), expected)


def test_training_holds_one_batch_of_images() -> None:
    source = ShardSource(Synthetic(64, (32, 32, 3), 4, seed=1), 64, 1, 0)
    first = source.batch(0).images
    tracemalloc.start()
    try:
        second = source.batch(1).images
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.shares_memory(first, second)
    assert peak < first.nbytes / 2  # the bytes they are made from are a quarter


def test_the_union_is_the_phones_batches_in_rank_order() -> None:
    batches = (2, 5, 1)
    parts = [Synthetic(40, SHAPE, 4, seed=1, index=index, count=3) for index in range(3)]
    sources = [
        ShardSource(part, batch, 1, index) for index, (part, batch) in enumerate(zip(parts, batches, strict=True))
    ]
    whole = Union(sources).batch(3)
    assert whole.images.shape == (8, *SHAPE)
    np.testing.assert_array_equal(whole.labels[2:7], sources[1].batch(3).labels)
