"""The CPU backend against the reference backend: losses, gradients and scores of the real kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.cpu import CpuBackend, CpuExecutable
from phone_agent.backends.reference_layers import Array
from phone_agent.contract.choices import BACKENDS
from phone_agent.contract.errors import BadRequestError
from phone_agent.core.library import CoreError
from phone_agent.nn.graph import Conv, Dense, Graph, GraphBuilder, GraphError, MaxPool, Relu
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import DoesNotFitError, does_not_fit, estimate_memory, largest_batch
from phone_agent.nn.plan.options import Options
from tests.phone_agent.agreement import batch_of, worst_of
from tests.phone_agent.random_graphs import graphs

NETWORKS = (
    ("lenet", (28, 28, 1), 6),
    ("resnet20", (32, 32, 3), 4),
    ("mobilenet_reduced", (32, 32, 3), 4),
    ("squeezenet_v1_1", (40, 40, 3), 3),
    ("googlenet", (32, 32, 3), 3),
)


def _agrees(graph: Graph, batch: int, options: Options, tolerance: float = 3e-4) -> CpuExecutable:
    """Loss, every gradient, running statistics and scores match the reference backend in double precision.

    A value that is zero up to rounding may pass a ReLU in one backend and not in the other, which changes all gradients
    before it. So the best of several random batches counts.
    """
    ours, theirs = State(graph, 1), State(graph, 1, np.float64)
    executable = CpuBackend().compile(graph, ours, batch, options)
    reference = get_backend("reference").compile(graph, theirs, batch, options)
    worst = []
    for seed in range(5):
        images, labels = batch_of(graph, batch, seed)
        ours.gradients[:] = np.nan
        loss = reference.loss_and_gradients(images.astype(np.float64), labels, 0.5, draw=9)
        assert executable.loss_and_gradients(images, labels, 0.5, draw=9) == pytest.approx(loss, rel=1e-5)
        worst.append(worst_of(ours, theirs))
        np.testing.assert_allclose(ours.statistics, theirs.statistics, atol=1e-4, rtol=1e-4)
        scores = reference.forward(images.astype(np.float64))
        np.testing.assert_allclose(executable.forward(images), scores, atol=tolerance * np.abs(scores).max(), rtol=0)
        if worst[-1][0] < tolerance:
            return executable
    pytest.fail(f"largest errors: {worst}")


@pytest.mark.parametrize(("name", "shape", "batch"), NETWORKS)
def test_networks_match_the_reference(name: str, shape: tuple[int, int, int], batch: int) -> None:
    _agrees(models.build(name, 10, shape), batch, Options(threads=2, winograd=False))


@pytest.mark.parametrize("name", ["resnet20", "squeezenet_v1_1"])
def test_networks_match_the_reference_with_winograd(name: str) -> None:
    _agrees(models.build(name, 10, (32, 32, 3)), 4, Options(threads=1))


def _gradients(graph: Graph, batch: int, options: Options) -> tuple[CpuExecutable, Array, float]:
    state = State(graph, 1)
    executable = CpuBackend().compile(graph, state, batch, options)
    loss = executable.loss_and_gradients(*batch_of(graph, batch), 1.0, draw=4)
    return executable, state.gradients, loss


@pytest.mark.parametrize("name", ["resnet20", "mobilenet_reduced", "squeezenet_v1_1", "googlenet"])
def test_recomputation_gives_the_same_gradients(name: str) -> None:
    graph = models.build(name, 10, (48, 48, 3))
    whole, gradients, loss = _gradients(graph, 4, Options(threads=2, memory_bytes=10**12))
    assert not whole.memory.recomputed
    budget = whole.memory.total - int(whole.memory.arena * 0.25)
    tight, again, same = _gradients(graph, 4, Options(threads=2, memory_bytes=budget))
    assert tight.memory.total <= budget
    assert tight.memory.recomputed
    assert same == loss
    np.testing.assert_allclose(again, gradients, atol=1e-6 * np.abs(gradients).max(), rtol=0)


@given(graphs())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_random_graphs_match_the_reference(graph: Graph) -> None:
    _agrees(graph, 5, Options(threads=2, winograd=False), tolerance=1e-3).close()


def _small() -> Graph:
    net = GraphBuilder((6, 6, 2))
    net.add("conv", Conv(5, 3))
    net.add("relu", Relu())
    net.add("pool", MaxPool(2, 2))
    net.add("fc", Dense(4))
    return net.build()


def _compiled(batch: int = 4, bucket_bytes: int = 4) -> tuple[CpuExecutable, State, Array, Array]:
    graph = _small()
    state = State(graph, 0)
    executable = CpuBackend().compile(graph, state, batch, Options(threads=2, bucket_bytes=bucket_bytes))
    return executable, state, *batch_of(graph, batch)


def test_scores_of_any_number_of_images() -> None:
    executable, _, _, _ = _compiled(batch=4)
    images, _ = batch_of(_small(), 11)
    scores = executable.forward(images)
    assert scores.shape == (11, 4)
    np.testing.assert_array_equal(scores[:4], executable.forward(images[:4]))
    np.testing.assert_allclose(scores[10:], executable.forward(images[10:]), rtol=1e-5)
    assert executable.forward(images[:0]).shape == (0, 4)


def test_memory_layout_of_images_does_not_matter() -> None:
    executable, state, images, labels = _compiled()
    loss = executable.loss_and_gradients(images, labels, 1.0)
    gradients = state.gradients.copy()
    for same in (images.astype(np.float64), np.asfortranarray(images), np.repeat(images, 2, axis=0)[::2]):
        assert executable.loss_and_gradients(same, labels.astype(np.uint8), 1.0) == loss
        np.testing.assert_array_equal(state.gradients, gradients)


def test_ready_is_called_for_complete_buckets_from_front_to_back() -> None:
    executable, state, images, labels = _compiled()
    executable.loss_and_gradients(images, labels, 1.0)
    whole, parts = state.gradients.copy(), []
    for gradient in state.packing.views(state.gradients).values():
        gradient[...] = np.nan

    def ready(start: int, end: int) -> None:
        parts.append((start, end))
        np.testing.assert_array_equal(state.gradients[:end], whole[:end])

    executable.loss_and_gradients(images, labels, 1.0, ready=ready)
    assert len(parts) > 1
    assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == whole.size


def test_need_is_called_before_values_are_read() -> None:
    """Until `need` is called for a bucket, it holds NaN."""
    executable, state, images, labels = _compiled()
    wanted = executable.loss_and_gradients(images, labels, 1.0)
    values, asked = state.values.copy(), []
    state.values[:] = np.nan

    def need(start: int, end: int) -> None:
        asked.append((start, end))
        state.values[start:end] = values[start:end]

    assert executable.loss_and_gradients(images, labels, 1.0, need=need) == wanted
    assert len(asked) > 1
    assert sum(end - start for start, end in asked) == values.size


def test_values_are_not_read_after_ready() -> None:
    executable, state, images, labels = _compiled()
    executable.loss_and_gradients(images, labels, 1.0)
    wanted = state.gradients.copy()

    def ready(start: int, end: int) -> None:
        state.values[start:end] = np.nan

    executable.loss_and_gradients(images, labels, 1.0, ready=ready)
    np.testing.assert_array_equal(state.gradients, wanted)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("model", ["lenet", "mobilenet_reduced", "squeezenet_v1_1"])
def test_accumulated_gradients_add_up(name: str, model: str) -> None:
    """Three images, then two: the gradients are the sum of those of each batch alone."""
    graph = models.build(model, 10, (28, 28, 1) if model == "lenet" else (40, 40, 3))
    state = State(graph, 1)
    executable = get_backend(name).compile(graph, state, 3, Options(threads=2), also=(2,))
    rng = np.random.default_rng(3)
    images, labels = rng.normal(0, 1, (5, *graph.shape)).astype(np.float32), rng.integers(0, 10, 5)
    alone = []
    for batch in (slice(0, 3), slice(3, 5)):
        executable.loss_and_gradients(images[batch], labels[batch], 0.5, draw=4)
        alone.append(state.gradients.astype(np.float64))
    executable.loss_and_gradients(images[:3], labels[:3], 0.5, draw=4)
    executable.loss_and_gradients(images[3:], labels[3:], 0.5, draw=4, accumulate=True)
    wanted = alone[0] + alone[1]
    np.testing.assert_allclose(state.gradients, wanted, atol=1e-6 * np.abs(wanted).max(), rtol=1e-5)


def test_profile_covers_every_op() -> None:
    executable, _, images, labels = _compiled()
    times = executable.profile(images, labels, runs=2)
    assert [time.kind for time in times if time.name == "conv"][:1] == ["conv_forward"]
    assert {time.direction for time in times} == {"forward", "backward"}
    assert all(time.seconds >= 0 for time in times)
    assert sum(time.flops for time in times if time.kind == "conv_forward") == 2 * 4 * (16 * 9 * 2 * 5 + 20 * 4)


def test_nan_loss_is_returned() -> None:
    executable, state, images, labels = _compiled()
    state.values[:] = np.nan
    assert np.isnan(executable.loss_and_gradients(images, labels, 1.0))


def test_invalid_inputs_are_rejected() -> None:
    executable, _, images, labels = _compiled(batch=4)
    with pytest.raises(BadRequestError, match="batch of 3 images; the network was compiled for 4"):
        executable.loss_and_gradients(images[:3], labels[:3], 1.0)
    with pytest.raises(BadRequestError, match=r"images have shape \(5, 6, 2\); the network expects \(6, 6, 2\)"):
        executable.forward(images[:, 1:])
    with pytest.raises(BadRequestError, match=r"labels have shape \(3,\)"):
        executable.loss_and_gradients(images, labels[:3], 1.0)
    with pytest.raises(BadRequestError, match="label 4: the network has classes 0 to 3"):
        executable.loss_and_gradients(images, labels * 0 + 4, 1.0)
    with pytest.raises(BadRequestError, match="label -1"):
        executable.loss_and_gradients(images, labels * 0 - 1, 1.0)
    with pytest.raises(BadRequestError, match="labels are float64"):
        executable.loss_and_gradients(images, labels.astype(np.float64), 1.0)
    with pytest.raises(BadRequestError, match="expected numbers"):
        executable.forward(images.astype(np.str_))


@pytest.mark.parametrize("threads", [0, 1000, -1])
def test_thread_counts_out_of_range_are_rejected(threads: int) -> None:
    with pytest.raises(CoreError, match=f"{threads} threads"):
        CpuBackend().compile(_small(), State(_small(), 0), 2, Options(threads=threads))


def test_a_mismatched_state_is_rejected() -> None:
    with pytest.raises(BadRequestError, match="float64"):
        CpuBackend().compile(_small(), State(_small(), 0, np.float64), 2, Options())
    with pytest.raises(BadRequestError, match="parameters"):
        CpuBackend().compile(_small(), State(models.build("lenet"), 0), 2, Options())
    with pytest.raises(GraphError, match="batch size 0"):
        CpuBackend().compile(_small(), State(_small(), 0), 0, Options())


def test_a_network_that_does_not_fit_reports_what_it_needs() -> None:
    graph = models.build("resnet50")
    with pytest.raises(
        DoesNotFitError, match=r"resnet50: a batch of 64 needs .* of memory, the budget is 420 MB"
    ) as error:
        CpuBackend().compile(graph, State(graph, 0), 64, Options(memory_bytes=420_000_000))
    fitting = re.fullmatch(r"use --batch (\d+), which fits, or a larger --memory", error.value.remedy)
    assert fitting
    assert estimate_memory(graph, int(fitting[1]), Options(memory_bytes=420_000_000)).total <= 420_000_000
    with pytest.raises(DoesNotFitError, match="one image needs"):
        largest_batch(graph, 200_000_000)


def test_need_and_budget_are_printed_distinctly() -> None:
    graph = models.build("lenet")
    need = estimate_memory(graph, 8, Options()).total
    error = does_not_fit(graph, 8, need, need - 1, Options())
    needed, budget = re.findall(r"[\d.]+ [MG]B", str(error))
    assert needed != budget


def test_batches_with_too_many_values_are_rejected() -> None:
    graph = models.build("lenet")
    with pytest.raises(GraphError, match=r"a batch of 1000000 needs \d+ values in conv1"):
        estimate_memory(graph, 1_000_000)
    assert largest_batch(graph, 10**12) < 1_000_000


def test_max_pool_windows_of_more_than_255_taps_are_rejected() -> None:
    net = GraphBuilder((20, 20, 1))
    net.add("conv", Conv(2, kernel=1))
    net.add("pool", MaxPool(16, 16))
    net.add("fc", Dense(3))
    with pytest.raises(GraphError, match=r"layer pool \(MaxPool\): the 16x16 window has more than 255 taps"):
        estimate_memory(net.build(), 1)


@pytest.mark.parametrize(("name", "plain", "again"), [("resnet50", 40, 80), ("mobilenet_v1", 80, 160)])
def test_largest_batches_that_fit_a_phone(name: str, plain: int, again: int) -> None:
    graph = models.build(name)
    assert largest_batch(graph, 2_800_000_000, Options(threads=2)) >= plain
    assert estimate_memory(graph, again, Options(threads=2, memory_bytes=2_800_000_000)).total <= 2_800_000_000
