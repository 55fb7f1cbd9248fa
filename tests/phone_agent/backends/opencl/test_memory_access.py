"""No kernel uses a memory object of which any part is mapped to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.opencl.backend import OpenClBackend
from phone_agent.backends.opencl.device import Device, find_device, load_pyopencl
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from tests.phone_agent.backends.opencl.memory_access import record_memory_access

GRAPH = models.build("mobilenet_reduced", 10, (32, 32, 3))
BATCH = 4
SMALL_BUCKETS = Options(bucket_bytes=20_000)


def batch_of(backend: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(3)
    images = backend.array(BATCH * 32 * 32 * 3).reshape(BATCH, *GRAPH.shape)
    images[...] = rng.normal(0, 1, images.shape)
    return images, rng.integers(0, 10, BATCH)


def shared_state(backend: OpenClBackend) -> State:
    state = State(GRAPH, 1)
    state.move(backend.array)
    return state


def test_training_and_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets are used by the host while kernels use the others."""
    access = record_memory_access(monkeypatch)
    backend = OpenClBackend()
    state = shared_state(backend)
    executable = backend.compile(GRAPH, state, BATCH, SMALL_BUCKETS, also=(2,))
    images, labels = batch_of(backend)
    for accumulate in (False, True):
        executable.loss_and_gradients(
            images, labels, 1.0, ready=lambda *_: None, need=lambda *_: None, accumulate=accumulate
        )
    executable.loss_and_gradients(images[:2], labels[:2], 1.0, ready=lambda *_: None)
    executable.forward(images)
    executable.profile(images, labels)
    assert not access.violations
    assert access.kernels > 100
    assert access.maps > 50


def test_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    access = record_memory_access(monkeypatch)
    backend = OpenClBackend()
    executable = backend.compile(GRAPH, shared_state(backend), BATCH, SMALL_BUCKETS)
    images, labels = batch_of(backend)

    def fail(_start: int, _end: int) -> None:
        raise ZeroDivisionError

    for ready, need in ((fail, None), (None, fail)):
        with pytest.raises(ZeroDivisionError):
            executable.loss_and_gradients(images, labels, 1.0, ready=ready, need=need)
    executable.loss_and_gradients(images, labels, 1.0)
    assert not access.violations


def test_two_executables_with_different_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    access = record_memory_access(monkeypatch)
    backend = OpenClBackend()
    state = shared_state(backend)
    images, labels = batch_of(backend)
    executables = [backend.compile(GRAPH, state, BATCH, Options(bucket_bytes=size)) for size in (20_000, 300_000)]
    losses = {
        each.loss_and_gradients(images, labels, 1.0, ready=lambda *_: None) for each in executables for _ in range(2)
    }
    assert len(losses) == 1
    assert not access.violations


def test_state_in_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    access = record_memory_access(monkeypatch)
    backend = OpenClBackend()
    state = State(GRAPH, 1)
    executable = backend.compile(GRAPH, state, BATCH, SMALL_BUCKETS)
    executable.loss_and_gradients(*batch_of(backend), 1.0, ready=lambda *_: None, need=lambda *_: None)
    assert not access.violations


def test_hybrid(monkeypatch: pytest.MonkeyPatch) -> None:
    access = record_memory_access(monkeypatch)
    backend = get_backend("hybrid")
    executable = backend.compile(GRAPH, State(GRAPH, 1), BATCH, Options(bucket_bytes=20_000, gpu_share=0.5))
    executable.loss_and_gradients(*batch_of(backend), 1.0, ready=lambda *_: None, need=lambda *_: None)
    assert not access.violations
    assert access.kernels


def test_a_device_that_aligns_more_strictly_than_buckets_gets_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = OpenClBackend()
    images, labels = batch_of(backend)
    in_place, copied = shared_state(backend), shared_state(backend)
    loss = backend.compile(GRAPH, in_place, BATCH, SMALL_BUCKETS).loss_and_gradients(images, labels, 1.0)
    monkeypatch.setattr(Device, "sub_buffer_alignment", 4096)
    access = record_memory_access(monkeypatch)
    executable = backend.compile(GRAPH, copied, BATCH, SMALL_BUCKETS)
    before = executable.copied
    assert executable.loss_and_gradients(images, labels, 1.0, ready=lambda *_: None) == loss
    np.testing.assert_array_equal(copied.gradients, in_place.gradients)
    assert executable.copied - before >= 4 * copied.values.nbytes
    assert not access.violations


SOURCE = "kernel void add(global float *x) { x[get_global_id(0)] += 1; }"


def test_the_recorder_finds_undefined_accesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL runs all of this without complaint."""
    cl, context = load_pyopencl(), find_device().context
    queue, other = cl.CommandQueue(context), cl.CommandQueue(context)
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "add")
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, 4096)
    left, right = buffer.get_sub_region(0, 2048), buffer.get_sub_region(2048, 2048)
    flags = cl.map_flags.READ | cl.map_flags.WRITE

    def map_then_use(mapped_object: Any, used: Any, *, unmap_in: Any = None, map_again: bool = False) -> list[str]:
        with monkeypatch.context() as patch:
            access = record_memory_access(patch)
            kernel.set_arg(0, used)
            mapped, _ = cl.enqueue_map_buffer(other, mapped_object, flags, 0, (1024,), np.uint8)
            if unmap_in is not None:
                mapped.base.release(unmap_in)
            cl.enqueue_nd_range_kernel(queue, kernel, (16,), None)
            if map_again:
                mapped, _ = cl.enqueue_map_buffer(other, mapped_object, flags, 0, (1024,), np.uint8)
            queue.finish()
            if unmap_in is None or map_again:
                mapped.base.release(other)
            other.finish()
        return access.violations

    assert not map_then_use(left, right)
    assert not map_then_use(left, left, unmap_in=queue)
    assert "add uses" in map_then_use(left, left)[0]
    assert "add uses" in map_then_use(left, buffer)[0]
    assert "add uses" in map_then_use(buffer, right)[0]  # whichever part is mapped
    assert "while unmap runs in another queue" in map_then_use(left, left, unmap_in=other)[0]
    assert "map of" in map_then_use(left, left, unmap_in=queue, map_again=True)[0]
