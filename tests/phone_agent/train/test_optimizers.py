"""The optimizers of the core against numpy, for any split of the buffers; exclusions; state."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.contract.choices import BACKENDS
from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.schema import CommunicationSpec, OptimizerSpec
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.options import Options
from phone_agent.train.memory_budget import state_floats
from phone_agent.train.optimizers import METHODS, build_optimizer, segments, state_names

Array = NDArray[Any]
GRAPH: Graph = models.build("resnet20", 10, (32, 32, 3))  # 270 000 values: parameters of one tile, and of several
SPEC = OptimizerSpec(momentum=0.9, weight_decay=0.01, lars_coefficient=0.02)
STEPS = 4
BORDERS = [slot.offset for slot in State(GRAPH, 0).packing.slots.values()]

methods = pytest.mark.parametrize("method", METHODS)


def gradients(step: int, size: int) -> Array:
    return np.random.default_rng(step).standard_normal(size).astype(np.float32)


def trained(
    spec: OptimizerSpec, cuts: tuple[int, ...] = (), dtype: Any = np.float32, graph: Graph = GRAPH, **how: Any
) -> State:
    """The state after some steps, updated part by part."""
    state = State(graph, 1)
    if dtype != np.float32:
        state.values, state.gradients, state.momenta = (
            buffer.astype(dtype) for buffer in (state.values, state.gradients, state.momenta)
        )
    made = build_optimizer(spec, state, **how)
    bounds = [0, *cuts, state.values.size]
    for step in range(1, STEPS + 1):
        state.gradients[:] = gradients(step, state.values.size)
        for start, end in pairwise(bounds):
            made.update(slice(start, end), 0.1 / step, step)
    return state


@pytest.mark.parametrize("backend", BACKENDS)
def test_sgd_is_the_textbook_one(backend: str) -> None:
    spec = replace(SPEC, decay_all=True)
    values = State(GRAPH, 1).values.astype(np.float64)
    momenta = np.zeros_like(values)
    for step in range(1, STEPS + 1):
        momenta = 0.9 * momenta + gradients(step, values.size) + 0.01 * values
        values -= 0.1 / step * momenta
    state = trained(spec, (BORDERS[len(BORDERS) // 3],), backend=backend, threads=2)
    np.testing.assert_allclose(state.values, values, rtol=0, atol=2e-6)
    np.testing.assert_allclose(state.momenta, momenta, rtol=0, atol=1e-5)


@methods
def test_core_agrees_with_numpy(method: str) -> None:
    spec = replace(SPEC, name=method)
    core, plain = trained(spec), trained(spec, dtype=np.float64, backend="reference")
    np.testing.assert_allclose(core.values, plain.values, rtol=0, atol=2e-6)
    np.testing.assert_allclose(core.momenta, plain.momenta, rtol=0, atol=1e-5)


@methods
@given(cuts=st.lists(st.sampled_from(BORDERS), max_size=4, unique=True), threads=st.integers(1, 3))
@settings(max_examples=5, deadline=None)
def test_splits_and_threads_do_not_change_the_result(method: str, cuts: list[int], threads: int) -> None:
    spec = replace(SPEC, name=method)
    whole, cut = trained(spec), trained(spec, tuple(sorted(cuts)), threads=threads)
    assert whole.values.tobytes() == cut.values.tobytes()


@methods
def test_each_isa_agrees(method: str) -> None:
    spec = replace(SPEC, name=method)
    np.testing.assert_allclose(trained(spec, isa="sse2").values, trained(spec).values, rtol=0, atol=2e-6)


@methods
def test_frozen_parameters_do_not_change(method: str) -> None:
    frozen = {"conv1.weight", *(name for name in State(GRAPH, 0).packing.slots if name.startswith("fc"))}
    graph = replace(GRAPH, frozen=frozenset(frozen))
    before, after = State(graph, 1), trained(replace(SPEC, name=method), graph=graph)
    for name, slot in before.packing.slots.items():
        same = np.array_equal(slot.view(before.values), slot.view(after.values))
        assert same == (name in frozen), name


@methods
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_biases_and_normalization_do_not_decay(method: str, backend: str) -> None:
    """With zero gradients only weight decay changes anything."""
    for decay_all in (False, True):
        state = State(GRAPH, 1)
        before = state.values.copy()
        spec = replace(SPEC, name=method, decay_all=decay_all)
        build_optimizer(spec, state, backend=backend).update(slice(None), 0.1, 1)
        for name, slot in state.packing.slots.items():
            moved = not np.array_equal(slot.view(before), slot.view(state.values))
            has_decay = (len(slot.shape) > 1 or decay_all) and bool(slot.view(before).any())
            assert moved == has_decay, name


@methods
@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_stays_zero(method: str, backend: str) -> None:
    state = State(GRAPH, 1)
    padding = np.ones(state.packing.size, bool)
    for name, view in state.packing.views(padding).items():
        view[...] = False
        state.packing.slots[name].view(state.gradients)[...] = 0.01
    optimizer = build_optimizer(replace(SPEC, name=method, decay_all=True), state, backend=backend)
    for step in range(1, STEPS + 1):
        optimizer.update(slice(None), 0.1, step)
    assert padding.any()
    assert not state.values[padding].any()


def test_vectors_are_not_adapted() -> None:
    for method in ("lars", "lamb"):
        spec = replace(SPEC, name=method)
        matrices = {slot.offset: len(slot.shape) > 1 for slot in State(GRAPH, 0).packing.slots.values()}
        assert {each.start: each.adapted for each in segments(State(GRAPH, 0).packing, spec)} == matrices


def test_neighbors_with_the_same_treatment_are_merged() -> None:
    packing = State(GRAPH, 0).packing
    alike = segments(packing, replace(SPEC, weight_decay=0.0))
    assert [(each.start, each.end) for each in alike] == [(0, packing.size)]
    frozen = State(replace(GRAPH, frozen=frozenset({"conv1.weight"})), 0).packing
    apart = segments(frozen, SPEC)
    assert all(left.end <= right.start for left, right in pairwise(apart))
    assert sum(each.end - each.start for each in apart) == frozen.trainable_size < packing.size


@pytest.mark.parametrize("part", [slice(1, None), slice(0, BORDERS[1] - 1), slice(None, None, 2)])
def test_part_of_a_parameter_is_rejected(part: slice) -> None:
    with pytest.raises(BadRequestError, match="whole number of parameters"):
        build_optimizer(SPEC, State(GRAPH, 0)).update(part, 0.1, 1)


def test_unknown_optimizers_are_rejected() -> None:
    with pytest.raises(BadRequestError, match="sgd, nesterov, lars, lamb"):
        build_optimizer(OptimizerSpec(name="adam"), State(GRAPH, 0))
    with pytest.raises(BadRequestError, match="epsilon"):
        build_optimizer(OptimizerSpec(name="lamb", epsilon=0.0), State(GRAPH, 0))


@methods
def test_memory_plan_counts_optimizer_state(method: str) -> None:
    spec = replace(SPEC, name=method)
    state = State(GRAPH, 0)
    held = sum(buffer.nbytes for buffer in build_optimizer(spec, state).buffers.values())
    assert held == estimate_memory(GRAPH, 4, Options(moments=len(state_names(spec)))).momenta


@methods
def test_resumes_from_its_state(method: str) -> None:
    """Buffers and step number are the whole state: another instance can take over."""
    spec = replace(SPEC, name=method)
    state = State(GRAPH, 1)
    kept: dict[str, Array] = {}
    for step in range(1, STEPS + 1):
        made = build_optimizer(spec, state)
        for name, buffer in kept.items():
            made.buffers[name][:] = buffer
        state.gradients[:] = gradients(step, state.values.size)
        made.update(slice(None), 0.1 / step, step)
        kept = {name: buffer.copy() for name, buffer in made.buffers.items()}
    assert state.values.tobytes() == trained(spec).values.tobytes()


@pytest.mark.parametrize("method", ["sgd", "nesterov"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_agrees_with_pytorch(method: str, backend: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    spec = replace(SPEC, name=method, decay_all=True)
    peer = torch.nn.Parameter(torch.tensor(State(GRAPH, 1).values, dtype=torch.float64))
    theirs = torch.optim.SGD(
        [peer], lr=0.1, momentum=spec.momentum, weight_decay=spec.weight_decay, nesterov=method == "nesterov"
    )
    for step in range(1, STEPS + 1):
        theirs.param_groups[0]["lr"] = 0.1 / step
        peer.grad = torch.tensor(gradients(step, peer.numel()), dtype=torch.float64)
        theirs.step()
    ours = trained(spec, backend=backend)
    np.testing.assert_allclose(ours.values, peer.detach().numpy(), rtol=0, atol=2e-6)


def test_error_feedback_and_local_steps_take_memory() -> None:
    sgd, lamb = OptimizerSpec(), OptimizerSpec(name="lamb")
    assert [state_floats(sgd, CommunicationSpec(wire=wire)) for wire in ("fp32", "fp16", "int8", "powersgd")] == [
        1,
        1,
        2,
        2,
    ]
    local = [
        CommunicationSpec(local_steps=steps, outer_momentum=outer) for steps, outer in ((1, 0.9), (4, 0.0), (4, 0.9))
    ]
    assert [state_floats(lamb, each) for each in local] == [2, 3, 4]
