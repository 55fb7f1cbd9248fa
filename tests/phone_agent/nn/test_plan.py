"""Plans of random graphs: buffers never overlap, and results match the reference backend."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phone_agent import models
from phone_agent.backends import cpu
from phone_agent.backends.reference import ReferenceBackend
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import Packing, State, backward_order
from phone_agent.nn.plan import algorithms, plan, recompute
from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.arena import ALIGNMENT, Lifetime, assign_offsets, compute_lifetimes, find_peak
from phone_agent.nn.plan.buckets import LAST_BUCKET_DIVISOR, Bucket, bucket_slices, schedule_buckets
from phone_agent.nn.plan.fuse import fuse
from phone_agent.nn.plan.lowered_graph import LoweredGraph, Storage
from phone_agent.nn.plan.ops import FLOAT, Buffer, MemorySpace, OpSpec
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.schedule import Schedule, training_schedule
from tests.phone_agent.numpy_core import NumpyThreadPool
from tests.phone_agent.random_graphs import frozen_graphs

BATCH = 3


def _discardable(lowered: LoweredGraph) -> list[Storage]:
    return list(dict.fromkeys(op.y.storage for op in lowered.ops if op.y.storage.writers))


def _schedule(graph: Graph, discarded: list[bool]) -> Schedule:
    lowered = fuse(graph)
    chosen = [storage for storage, discard in zip(_discardable(lowered), discarded, strict=False) if discard]
    return training_schedule(
        lowered, Addresses(graph, lowered, BATCH, 2), algorithms.algorithm_selector(Options()), chosen
    )


def _overlaps(lives: list[Lifetime], offsets: dict[Buffer, int]) -> list[tuple[str, str]]:
    def overlap(one: Lifetime, other: Lifetime) -> bool:
        start, begin = offsets[one.buffer], offsets[other.buffer]
        in_space = start < begin + other.buffer.bytes and begin < start + one.buffer.bytes
        return in_space and one.first <= other.last and other.first <= one.last

    return [
        (one.buffer.name, other.buffer.name)
        for index, one in enumerate(lives)
        for other in lives[:index]
        if overlap(one, other)
    ]


discards = st.lists(st.booleans(), max_size=20)


@given(frozen_graphs(), discards)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_no_two_buffers_in_use_overlap(graph: Graph, discarded: list[bool]) -> None:
    lives = compute_lifetimes(_schedule(graph, discarded).ops)
    layout = assign_offsets(lives)
    assert _overlaps(lives, layout.offsets) == []
    assert all(offset % ALIGNMENT == 0 for offset in layout.offsets.values())
    assert all(layout.offsets[life.buffer] + life.buffer.bytes <= layout.bytes for life in lives)
    assert layout.bytes >= find_peak(lives)[1]


spans = st.tuples(st.integers(1, 5000), st.integers(0, 12), st.integers(0, 12))


@given(st.lists(spans, max_size=25))
@settings(deadline=None)
def test_layouts_of_random_lifetimes_do_not_overlap(made: list[tuple[int, int, int]]) -> None:
    lives = [Lifetime(Buffer(str(size), size), min(a, b), max(a, b)) for size, a, b in made]
    layout = assign_offsets(lives)
    assert _overlaps(lives, layout.offsets) == []
    assert layout.bytes <= sum(life.bytes for life in lives)


@pytest.mark.parametrize("name", ["inception_v3", "resnet50", "squeezenet_v1_0"])
def test_layouts_of_known_networks_have_no_gaps(name: str) -> None:
    made = plan.make_plan(models.build(name), 4, Options(threads=2))
    taken, least = made.arena, find_peak(compute_lifetimes(made.training.ops))[1]
    assert taken == least


def test_planning_is_deterministic() -> None:
    def discarded() -> tuple[str, ...]:
        graph = models.build("resnet50")
        made.append(graph)  # keeps it alive, so that the next one has another address
        recompute._search.cache_clear()
        return tuple(storage.name for storage in recompute.choose_discarded(graph, 16, None))

    made: list[Graph] = []
    assert len({discarded() for _ in range(6)}) == 1


def test_planning_leaves_no_reference_cycles() -> None:
    lowered = fuse(graph := models.build("mentee"))
    addresses = Addresses(graph, lowered, BATCH, 2)
    gc.collect()
    training_schedule(lowered, addresses, algorithms.select_direct, _discardable(lowered)[:3])
    assert gc.collect() == 0


@given(frozen_graphs(), discards)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_buckets_complete_from_front_to_back(graph: Graph, discarded: list[bool]) -> None:
    schedule, packing = _schedule(graph, discarded), State(graph, 0).packing
    found = schedule_buckets(schedule, packing, bucket_bytes=64)
    assert [bucket.start for bucket in found] == [0, *(bucket.end for bucket in found[:-1])]
    assert found[-1].end == packing.size
    assert [bucket.complete_at for bucket in found] == sorted(bucket.complete_at for bucket in found)
    for bucket in found:
        touched = [index for index, op in enumerate(schedule.ops) if _touches(op, bucket)]
        assert bucket.first_read == touched[0] < schedule.backward_start
        assert bucket.complete_at > touched[-1]


def _touches(op: OpSpec, bucket: Bucket) -> bool:
    return any(
        pointer.buffer.space in (MemorySpace.VALUES, MemorySpace.GRADIENTS)
        and bucket.start <= pointer.offset // FLOAT < bucket.end
        for pointer in op.pointers()
    )


@pytest.mark.parametrize("bucket_bytes", [1, 300, 1 << 30])
def test_buckets_hold_whole_parameters_and_reach_the_requested_size(bucket_bytes: int) -> None:
    packing = State(models.build("lenet", 10, (28, 28, 1)), 0).packing
    found = bucket_slices(packing, bucket_bytes)
    borders = {slot.offset for slot in packing.slots.values()}
    assert {part.start for part in found} <= borders
    assert [part.start for part in found] == [0, *(part.stop for part in found[:-1])]
    assert found[-1].stop == packing.size
    assert all((part.stop - part.start) * FLOAT >= bucket_bytes for part in found[:-2])


@pytest.mark.parametrize("name", ["mobilenet_v1", "resnet50", "squeezenet_v1_1"])
def test_the_bucket_that_forward_needs_first_is_short(name: str) -> None:
    bucket = 4 << 20
    packing = Packing(backward_order(models.build(name)))
    last = bucket_slices(packing, bucket)[-1]
    assert 0 < (last.stop - last.start) * FLOAT <= bucket // LAST_BUCKET_DIVISOR


def _gradients_agree(graph: Graph, options: Options, draw: int = 7) -> None:
    ours, theirs = State(graph, 1), State(graph, 1, np.float64)
    rng = np.random.default_rng(5)
    ours.values += rng.normal(0, 0.3, ours.values.shape).astype(np.float32)
    theirs.values[:] = ours.values
    images = rng.normal(0, 1, (BATCH, *graph.shape)).astype(np.float32)
    labels = rng.integers(0, graph.classes, BATCH)
    ours.gradients[:] = np.nan
    executable = cpu.CpuBackend().compile(graph, ours, BATCH, options)
    reference = ReferenceBackend().compile(graph, theirs, BATCH, options)
    loss = executable.loss_and_gradients(images, labels, 0.5, draw)
    assert loss == pytest.approx(reference.loss_and_gradients(images.astype(np.float64), labels, 0.5, draw), 1e-4)
    largest = np.abs(theirs.gradients).max()
    for name, wanted in theirs.packing.views(theirs.gradients).items():
        if name in graph.frozen:
            continue
        got = ours.packing.views(ours.gradients)[name]
        tolerance = 2e-4 * (np.abs(wanted).max() + 0.1 * largest)
        np.testing.assert_allclose(got, wanted, atol=tolerance, rtol=0, err_msg=name)
    np.testing.assert_allclose(ours.statistics, theirs.statistics, atol=1e-5, rtol=1e-5)
    scores = reference.forward(images.astype(np.float64))
    np.testing.assert_allclose(executable.forward(images), scores, atol=1e-4 * max(1, np.abs(scores).max()))


@given(frozen_graphs(), discards)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_plans_match_the_reference_backend(graph: Graph, discarded: list[bool]) -> None:
    def chosen(graph: Graph, *_: object, **_also: object) -> tuple[Storage, ...]:
        return tuple(storage for storage, discard in zip(_discardable(fuse(graph)), discarded, strict=False) if discard)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "ThreadPool", NumpyThreadPool)
        patch.setattr(plan, "core_workspace_bytes", lambda *_: 0)
        patch.setattr(recompute, "choose_discarded", chosen)
        _gradients_agree(graph, Options(threads=2))
