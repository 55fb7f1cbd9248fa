from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.contract.errors import AgentError
from phone_agent.nn import packing
from phone_agent.nn.packing import State, packing_of
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.ops import FLOAT

LENET = models.build("lenet", 10, (28, 28, 1))
FROZEN = replace(LENET, frozen=frozenset({"fc2.weight", "conv2.bias"}))


def initial(seed: int) -> NDArray[np.float32]:
    return State(LENET, seed).values


def test_packing_follows_the_order_of_backward() -> None:
    layers = [name.split(".")[0] for name in packing_of(LENET).slots]
    assert layers == ["fc2", "fc2", "fc1", "fc1", "conv2", "conv2", "conv1", "conv1"]


def test_slots_cover_the_buffer_without_gap_or_overlap() -> None:
    packed = packing_of(LENET)
    slots = list(packed.slots.values())
    assert [slot.offset for slot in slots] == [0, *(slot.end for slot in slots[:-1])]
    assert slots[-1].end == packed.size
    assert sum(view.size for view in packed.views(np.zeros(packed.size)).values()) == LENET.parameter_count


@pytest.mark.parametrize("bucket_bytes", [64, 20_000, 1 << 20])
def test_no_two_buckets_share_a_cache_line(bucket_bytes: int) -> None:
    for graph in (LENET, FROZEN, models.build("mobilenet_reduced")):
        for part in bucket_slices(packing_of(graph), bucket_bytes):
            assert part.start * FLOAT % 128 == part.stop * FLOAT % 128 == 0


def test_padding_starts_at_zero() -> None:
    state = State(LENET, seed=1)
    padded = np.ones(state.packing.size, bool)
    for view in state.packing.views(padded).values():
        view[...] = False
    assert padded.any()
    assert not state.values[padded].any()


def test_frozen_parameters_come_last_with_the_same_initial_values() -> None:
    usual, state = State(LENET, seed=1), State(FROZEN, seed=1)
    assert list(state.packing.slots)[-2:] == ["fc2.weight", "conv2.bias"]
    assert state.packing.slots["fc2.weight"].offset == state.packing.trainable_size
    assert state.packing.size == usual.packing.size == usual.packing.trainable_size
    found = state.packing.views(state.values)
    for name, value in usual.packing.views(usual.values).items():
        np.testing.assert_array_equal(found[name], value)


def test_repacking_from_another_order() -> None:
    usual, state = State(LENET, seed=1), State(FROZEN, seed=2)
    state.values[...] = state.packing.repack(usual.values, list(usual.packing.slots))
    np.testing.assert_array_equal(state.values, State(FROZEN, seed=1).values)
    assert usual.packing.repack(usual.values, list(usual.packing.slots)) is usual.values
    for order in (["fc2.weight"], [*usual.packing.slots, "fc2.weight"], []):
        with pytest.raises(AgentError, match="does not match"):
            state.packing.repack(usual.values, order)


def test_views_share_memory_with_the_buffer() -> None:
    state = State(LENET, seed=0)
    state.packing.views(state.gradients)["fc2.bias"][...] = 7
    assert (state.gradients == 7).sum() == 10


def test_initial_values_have_the_same_bits_on_every_phone() -> None:
    """A fixed digest: phones with another numpy or processor must start from the same bits."""
    views = packing_of(LENET).views(initial(seed=1))
    digest = hashlib.sha256(b"".join(view.tobytes() for view in views.values())).hexdigest()
    assert digest == "8e7b8d5896fa5662e114a73481760304da13ab72c5f8eb4e009b1ec5b3e3f661"
    assert not np.array_equal(initial(seed=1), initial(seed=2))


def test_biases_start_at_zero_and_weights_within_their_limit() -> None:
    views = packing_of(LENET).views(initial(seed=1))
    assert not views["conv1.bias"].any()
    limit = np.sqrt(6 / 800)
    assert 0.99 * limit < abs(views["fc1.weight"]).max() <= limit
    assert abs(views["fc1.weight"].var() - 2 / 800) < 0.02 * 2 / 800


def test_initial_values_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = initial(seed=1)
    monkeypatch.setattr(packing, "BLOCK", 997)
    np.testing.assert_array_equal(initial(seed=1), whole)


def test_batch_normalization_starts_as_the_identity() -> None:
    graph = models.build("resnet20")
    state = State(graph, seed=1)
    values = state.packing.views(state.values)
    statistics = state.statistics_packing.views(state.statistics)
    assert (values["bn1.weight"] == 1).all()
    assert not values["bn1.bias"].any()
    assert not statistics["bn1.running_mean"].any()
    assert (statistics["bn1.running_var"] == 1).all()
    assert state.statistics_packing.size == sum(kept.size for node in graph.nodes for kept in node.statistics)


def test_convolutions_can_be_initialized_by_fan_out() -> None:
    values = State(models.build("resnet20"), seed=1).values
    weight = State(models.build("resnet20"), seed=1).packing.views(values)["layer2.0.conv1.weight"]
    limit = np.sqrt(6 / (9 * 32))
    assert 0.99 * limit < abs(weight).max() <= limit
