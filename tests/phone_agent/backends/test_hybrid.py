"""The hybrid backend: exact weighting, bucket order, and the same results as on two phones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.cpu import CpuBackend
from phone_agent.backends.hybrid import BatchSplit, HybridBackend, HybridExecutable, merge_statistics
from phone_agent.contract.errors import AgentError
from phone_agent.nn.executable import Backend, GradientRequest
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.options import Options

BATCH, CLASSES = 7, 10
PLAIN, NORMALIZED = ("lenet", (28, 28, 1)), ("mobilenet_reduced", (32, 32, 3))
Array = NDArray[Any]


def network(name: str, shape: tuple[int, int, int]) -> Graph:
    return models.build(name, CLASSES, shape)


def samples(graph: Graph, count: int = BATCH) -> tuple[Array, Array]:
    source = np.random.default_rng(3)
    images = source.standard_normal((count, *graph.shape)).astype(np.float32)
    return images, source.integers(0, CLASSES, count)


def hybrid(graph: Graph, state: State, share: float | None, gpu: Backend | None = None) -> HybridExecutable:
    options = Options(gpu_share=share, bucket_bytes=64 * 1024)
    return HybridBackend(CpuBackend(), gpu or CpuBackend()).compile(graph, state, BATCH, options)


def close_to(found: Array, wanted: Array, tolerance: float = 2e-6) -> None:
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("gpu", ["cpu", "opencl", "reference"])
def test_both_parts_add_up_to_the_batch(share: float, gpu: str) -> None:
    graph = network(*PLAIN)
    images, labels = samples(graph)
    alone, shared = State(graph, 1), State(graph, 1)
    loss = CpuBackend().compile(graph, alone, BATCH, Options()).loss_and_gradients(images, labels, 0.25)
    executable = hybrid(graph, shared, share, get_backend(gpu))
    for _ in range(2):  # the second call overwrites the gradients of the first
        assert executable.loss_and_gradients(images, labels, 0.25) == pytest.approx(loss, rel=1e-5)
        close_to(shared.gradients, alone.gradients)
    executable.loss_and_gradients(images, labels, 0.25, accumulate=True)
    close_to(shared.gradients, 2 * alone.gradients)
    close_to(executable.forward(images), CpuBackend().compile(graph, alone, BATCH, Options()).forward(images))


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_buckets_are_ready_in_order_and_complete(share: float) -> None:
    graph = network(*PLAIN)
    images, labels = samples(graph)
    state = State(graph, 1)
    executable = hybrid(graph, state, share)
    executable.loss_and_gradients(images, labels, 1.0)
    wanted = state.gradients.copy()
    reported: list[tuple[int, int]] = []
    needed: set[int] = set()

    def ready(start: int, end: int) -> None:
        np.testing.assert_array_equal(state.gradients[start:end], wanted[start:end])
        reported.append((start, end))

    executable.loss_and_gradients(images, labels, 1.0, ready=ready, need=lambda start, _end: needed.add(start))
    expected = [(part.start, part.stop) for part in bucket_slices(state.packing, 64 * 1024)]
    assert reported == expected
    assert needed == {start for start, _ in expected}


def test_batch_normalization_is_per_part_as_on_two_phones() -> None:
    graph = network(*NORMALIZED)
    images, labels = samples(graph)
    split = BatchSplit.of(BATCH, 0.4)
    phones = [State(graph, 1) for _ in range(2)]
    cuts = (slice(0, split.cpu), slice(split.cpu, BATCH))
    shared = State(graph, 1)
    executable = hybrid(graph, shared, 0.4)
    each = [CpuBackend().compile(graph, s, c.stop - c.start, Options()) for s, c in zip(phones, cuts, strict=True)]
    shares = [split.cpu / BATCH, split.gpu / BATCH]
    for _ in range(3):
        executable.loss_and_gradients(images, labels, 1.0)
        for phone, cut, share in zip(each, cuts, shares, strict=True):
            phone.loss_and_gradients(images[cut], labels[cut], share)
        close_to(shared.gradients, phones[0].gradients + phones[1].gradients)
        together = merge_statistics(shared, [phone.statistics for phone in phones], shares)
        np.testing.assert_allclose(shared.statistics, together, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.4, 0.5, 0.6, 0.8, 0.95])
def test_neither_part_is_a_single_image_if_batch_normalization_needs_two(share: float) -> None:
    graph = network("mobilenet_reduced", (4, 4, 3))
    assert graph.min_batch == 2
    executable = hybrid(graph, State(graph, 1), share)
    for count in range(2, BATCH + 1):
        split = BatchSplit.of(count, share, smallest=2)
        assert split.cpu + split.gpu == count
        assert 1 not in {split.cpu, split.gpu}
        executable.prepare({count})
        executable.loss_and_gradients(*samples(graph, count), 1.0)


def test_replaced_statistics_are_used() -> None:
    graph = network(*NORMALIZED)
    images, labels = samples(graph)
    state, fresh = State(graph, 1), State(graph, 1)
    executable = hybrid(graph, state, 0.4)
    executable.loss_and_gradients(images, labels, 1.0)
    after_one = state.statistics.copy()
    executable.loss_and_gradients(images, labels, 1.0)
    state.statistics[...] = fresh.statistics
    executable.loss_and_gradients(images, labels, 1.0)
    np.testing.assert_array_equal(state.statistics, after_one)


def test_merged_statistics_are_those_of_all_images() -> None:
    graph = network(*NORMALIZED)
    state = State(graph, 1)
    a, b = np.full_like(state.statistics, 1.0), np.full_like(state.statistics, 3.0)
    views = state.statistics_packing.views(merge_statistics(state, (a, b), (0.25, 0.75)))
    assert {name.rpartition(".")[2]: view.flat[0] for name, view in views.items()} == {
        "running_mean": 2.5,
        "running_var": 2.5 + 0.75,
    }


def test_gpu_share_is_measured_and_applied_to_every_size() -> None:
    graph = network(*PLAIN)
    state = State(graph, 1)
    values = state.values.copy()
    executable = hybrid(graph, state, None)
    assert 0 < executable.gpu_share < 1
    np.testing.assert_array_equal(state.values, values)
    executable.prepare({1, 3})
    images, labels = samples(graph, 3)
    assert np.isfinite(executable.loss_and_gradients(images, labels, 1.0))


class Broken:
    """A GPU that fails in the middle of backward."""

    def array(self, count: int, dtype: Any = np.float32) -> Array:
        return np.zeros(count, dtype)

    def compile(self, *_: Any) -> Broken:
        return self

    def compute_gradients(self, request: GradientRequest) -> float:
        assert request.ready is not None
        request.ready(0, 1)
        raise AgentError("the driver hangs")


def test_gpu_failure_is_raised_and_no_incomplete_bucket_is_reported() -> None:
    graph = network(*PLAIN)
    images, labels = samples(graph)
    executable = hybrid(graph, State(graph, 1), 0.4, Broken())  # type: ignore[arg-type]
    reported: list[int] = []
    with pytest.raises(AgentError, match="hangs"):
        executable.loss_and_gradients(images, labels, 1.0, ready=lambda start, _: reported.append(start))
    assert len(reported) <= 1
