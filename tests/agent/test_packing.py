from __future__ import annotations

import hashlib

import numpy as np

from phone_agent import models
from phone_agent.nn.packing import Packing, State, initial_values

LENET = models.build("lenet", 10, (28, 28, 1))


def test_the_buffer_is_in_the_order_backward_finishes() -> None:
    packing = Packing(LENET)
    layers = [name.split(".")[0] for name in packing.slots]
    assert layers == ["fc2", "fc2", "fc1", "fc1", "conv2", "conv2", "conv1", "conv1"]


def test_slots_cover_the_buffer_without_gap_or_overlap() -> None:
    packing = Packing(LENET)
    buffer = np.zeros(packing.size, np.int32)
    for view in packing.views(buffer).values():
        np.add(view, 1, out=view)
    assert packing.size == LENET.parameter_count
    assert (buffer == 1).all()


def test_views_share_memory_with_the_buffer() -> None:
    state = State(LENET, seed=0)
    state.packing.views(state.gradients)["fc2.bias"][...] = 7
    assert (state.gradients == 7).sum() == 10


def test_initial_values_are_these_bits_on_every_phone() -> None:
    """Written down: a phone with another numpy or processor must start from the very same values."""
    digest = hashlib.sha256(initial_values(LENET, seed=1).tobytes()).hexdigest()
    assert digest == "3ebe50a08ae1d9128f6300b3e6e1e4232d6dd197e12a37effcc13c4a7d061275"
    assert not np.array_equal(initial_values(LENET, seed=1), initial_values(LENET, seed=2))


def test_biases_start_at_zero_and_weights_within_their_limit() -> None:
    views = Packing(LENET).views(initial_values(LENET, seed=1))
    assert not views["conv1.bias"].any()
    limit = np.sqrt(6 / 800)
    assert 0.99 * limit < abs(views["fc1.weight"]).max() <= limit
    assert abs(views["fc1.weight"].var() - 2 / 800) < 0.02 * 2 / 800
