"""OpenCL backend: runs a plan as kernel launches, in memory shared with the host.

Values, gradients, statistics and images stay in place: ranges that the device reads or writes are unmapped from the
host, and mapped again bucket by bucket when it has finished, so the host sends one bucket while the device computes the
next. Every bucket is a memory object of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.backends.opencl import tiles
from phone_agent.backends.opencl.device import Device, find_device, load_pyopencl
from phone_agent.backends.opencl.device_memory import (
    Arena,
    BufferBindings,
    DeviceMemory,
    SharedBlock,
    SharedMemory,
    block_of,
    make_device_array,
)
from phone_agent.backends.opencl.emit import Launch, LaunchBuilder
from phone_agent.backends.opencl.launches import build_launches
from phone_agent.backends.opencl.memory_estimate import arena_segment_bytes, options_for_device
from phone_agent.backends.opencl.program import ProgramCache
from phone_agent.backends.opencl.watchdog import Watchdog
from phone_agent.backends.planned_executable import OpTime, PlannedExecutable, check_batch, is_readable_in_place
from phone_agent.nn.executable import GradientRequest, ValuesNeeded
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.addresses import DRAW, LABELS, LOSS, WEIGHT
from phone_agent.nn.plan.buckets import Bucket, bucket_slices, schedule_buckets
from phone_agent.nn.plan.ops import FLOAT, MemorySpace, OpSpec, TensorView
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import Plan

Array = NDArray[Any]
Started = list[tuple[str, Any]]  # the name of an op, and the event of its last launch


@dataclass(frozen=True)
class _Runtime:
    """Shared by all executables of this process, since OpenCL contexts cannot be mixed."""

    shared: SharedMemory
    programs: ProgramCache
    watchdog: Watchdog


_RUNTIME_LOCK = Lock()


def _runtime() -> _Runtime:
    with _RUNTIME_LOCK:  # so that two threads do not create two
        return _create_runtime()


@cache
def _create_runtime() -> _Runtime:
    device = find_device()
    watchdog = Watchdog(device.identity.device)
    with device.reporting_errors():
        return _Runtime(SharedMemory(device, watchdog), ProgramCache(device), watchdog)


class OpenClBackend:
    """Raises NoDeviceError if there is no OpenCL device."""

    def __init__(self) -> None:
        self.shared = _runtime().shared

    @property
    def device(self) -> Device:
        return self.shared.device

    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        with self.device.reporting_errors():
            return self.shared.array(count, dtype)

    def compile(
        self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()
    ) -> OpenClExecutable:
        with self.device.reporting_errors():
            return OpenClExecutable(graph, state, batch, options, also)


class _Launches:
    """A plan for one batch size as launches, one list per op."""

    def __init__(self, plan: Plan, buckets: Sequence[Bucket], builder: LaunchBuilder) -> None:
        self.plan, self._builder = plan, builder
        self.batch = plan.addresses.batch
        self.buckets = buckets
        self.buckets_by_read = sorted(buckets, key=lambda bucket: bucket.first_read)
        self.training = _launches(plan.training.ops, builder)
        self.evaluation = _launches(plan.evaluation.ops, builder)

    @cached_property
    def accumulating(self) -> list[list[Launch]]:
        """Training that adds to the existing gradients."""
        middle = self.plan.training.backward_start
        self._builder.accumulate = True
        return [*self.training[:middle], *_launches(self.plan.training.ops[middle:], self._builder)]

    @property
    def scratch_bytes(self) -> int:
        return self._builder.scratch_bytes

    def bind(self, bindings: BufferBindings) -> None:
        for launch in self._all():
            launch.bind(bindings)

    def set_images(self, buffer: Any, start: int) -> None:
        for launch in self._all():
            launch.set_images(buffer, start)

    def _all(self) -> Iterator[Launch]:
        backward = self.plan.training.backward_start
        accumulating = self.accumulating[backward:] if "accumulating" in self.__dict__ else []
        for each in (*self.training, *self.evaluation, *accumulating):
            yield from each


def _launches(ops: Sequence[OpSpec], builder: LaunchBuilder) -> list[list[Launch]]:
    return [build_launches(op, builder) for op in ops]


class OpenClExecutable(PlannedExecutable[_Launches]):
    def __init__(self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()) -> None:
        runtime = _runtime()
        self._shared, self._compiled, self._watchdog = runtime.shared, runtime.programs, runtime.watchdog
        self._device = device = self._shared.device
        self._segment_bytes = arena_segment_bytes(device.limits)
        super().__init__(graph, state, batch, options_for_device(options, device.limits), also)
        self._tiles = replace(tiles.default_tiles(device.limits), **dict(options.tiles))
        self._ranges = [(part.start, part.stop) for part in bucket_slices(state.packing, options.bucket_bytes)]
        self._values = make_device_array(self._shared, state.values, self._ranges)
        self._gradients = make_device_array(self._shared, state.gradients, self._ranges)
        self._statistics_ranges = [(0, state.statistics.size)] if state.statistics.size else []
        self._statistics = make_device_array(self._shared, state.statistics, self._statistics_ranges)
        self._vectors = _initial_vectors(self._shared, self._plan)
        self._step_io = SharedBlock(self._shared, LABELS + batch * FLOAT)
        self._copy: SharedBlock | None = None  # of images that the device cannot read in place
        self._arena, self._scratch = Arena(self._shared, 0, self._segment_bytes), self._shared.device_buffer(FLOAT)
        self._add(self._plans)

    @property
    def copied(self) -> int:
        """Bytes copied between host and device so far, in this process."""
        return self._shared.copied

    def compute_gradients(self, request: GradientRequest) -> float:
        images, ready = request.images, request.ready
        check_batch(self._graph, self._programs, images, request.labels)
        self._set_inputs(request.labels, request.weight, request.draw)
        programs = self._programs[len(images)]
        program = self._accumulating(programs) if request.accumulate else programs.training
        started: Started = []
        with self._on_device(images, programs, started):
            self._start(program, self._upload_values(program, programs, request.need, started), len(program), started)
            if ready is not None:
                for bucket in programs.buckets:
                    self._watchdog.wait(started[: bucket.complete_at])
                    self._map(bucket.start, bucket.end)
                    ready(bucket.start, bucket.end)
        return float(self._step_io.array()[LOSS : LOSS + 4].view(np.float32)[0])

    def prepare(self, sizes: Collection[int]) -> None:
        with self._device.reporting_errors():
            super().prepare(sizes)

    def profile(self, images: Array, labels: Array, runs: int = 1) -> list[OpTime]:
        """Time per op of a training step: the best of several runs. Overwrites the gradients, like any step."""
        check_batch(self._graph, [self._batch], images, labels)
        self._set_inputs(labels, 1.0, 0)
        programs = self._programs[self._batch]
        best = np.full(len(programs.training), np.iinfo(np.int64).max)
        for _ in range(runs):
            started: Started = []
            with self._on_device(images, programs, started):
                self._upload_values(programs.training, programs, None, started)
                self._shared.finish()
                best = np.minimum(best, self._profile(programs.training, started))
        return self._op_times(best.tolist())

    def close(self) -> None:
        with self._device.reporting_errors():
            self._shared.finish()

    # Device memory of the programs

    def _add(self, plans: dict[int, Plan]) -> None:
        new = [self._build(plan) for plan in plans.values()]
        self._programs |= {each.batch: each for each in new}
        self._allocate(new)

    def _build(self, plan: Plan) -> _Launches:
        buckets = schedule_buckets(plan.training, self._state.packing, self._options.bucket_bytes)
        return _Launches(plan, buckets, LaunchBuilder(self._compiled, self._tiles))

    def _accumulating(self, programs: _Launches) -> list[list[Launch]]:
        if "accumulating" not in programs.__dict__:
            _ = programs.accumulating
            self._allocate([programs])
        return programs.accumulating

    def _allocate(self, new: Sequence[_Launches]) -> None:
        """Allocate memory for these programs and bind them; rebind all programs if the memory had to grow."""
        arena = max((each.plan.arena for each in new), default=0)
        scratch = max((each.scratch_bytes for each in new), default=0)
        if arena > self._arena.bytes or scratch > self._scratch.size:
            self._arena = Arena(self._shared, max(arena, self._arena.bytes), self._segment_bytes)
            self._scratch = self._shared.device_buffer(max(scratch, self._scratch.size))
            new = [*self._programs.values()]
        for each in new:
            each.bind(self._bindings(each.plan))
        self.memory = replace(self.memory, workspace=self._scratch.size)

    def _bindings(self, plan: Plan) -> BufferBindings:
        buffers: dict[MemorySpace, DeviceMemory] = {
            MemorySpace.VALUES: self._values,
            MemorySpace.GRADIENTS: self._gradients,
            MemorySpace.STATISTICS: self._statistics,
            MemorySpace.VECTORS: self._vectors,
            MemorySpace.STEP_IO: self._step_io,
        }
        return BufferBindings(buffers, self._arena, plan.offsets, self._scratch)

    # Inputs and outputs of a step

    def _set_inputs(self, labels: Array, weight: float, draw: int) -> None:
        step_io = self._step_io.array()
        step_io[LABELS:].view(np.int32)[: len(labels)] = labels
        step_io[WEIGHT : WEIGHT + 4].view(np.float32)[0] = weight
        step_io[DRAW : DRAW + 8].view(np.uint64)[0] = draw

    @contextmanager
    def _on_device(self, images: Array, programs: _Launches, started: Started) -> Iterator[None]:
        """Give memory to the device. On exit, the device has finished and the host owns all memory.

        If the device is lost, the host owns all memory that the driver still maps. Raises a DeviceError.
        """
        image_block = self._image_block(images, programs)
        with self._device.reporting_errors(), ExitStack() as at_exit:  # each callback runs, whatever the others raise
            for array in (self._values, self._gradients, self._statistics):
                array.split()
            programs.set_images(image_block.buffer, 0)
            for start, end in self._ranges:
                at_exit.callback(self._gradients.map, start, end)
                at_exit.callback(self._values.map, start, end)
            for start, end in self._statistics_ranges:
                at_exit.callback(self._statistics.map, start, end)
                self._statistics.unmap(start, end)
            for block in (image_block, self._step_io):
                at_exit.callback(block.map_all)
                block.unmap_all()
            at_exit.callback(self._shared.finish)  # memory may have been unmapped after the last kernel
            at_exit.callback(self._watchdog.wait, started)
            yield

    def _image_block(self, images: Array, programs: _Launches) -> SharedBlock:
        """The shared block of these images, or of a copy if the device cannot read them in place."""
        block = block_of(images) if is_readable_in_place(images, programs.batch) else None
        if block is not None and block.address == images.ctypes.data:
            return block
        if self._copy is None:
            self._copy = SharedBlock(self._shared, self._batch * prod(self._graph.shape) * FLOAT)
        copy = self._copy.array(np.float32)[: images.size]
        copy[:] = images.reshape(-1)
        self._shared.copied += copy.nbytes
        return self._copy

    def _upload_values(
        self, program: list[list[Launch]], programs: _Launches, need: ValuesNeeded | None, started: Started
    ) -> int:
        """Give the values to the device, each bucket when it is available, and start ops that can run.

        Returns the number of ops started.
        """
        if need is None:
            for start, end in self._ranges:
                self._unmap(start, end)
            return 0
        done = 0
        for bucket in programs.buckets_by_read:
            done = self._start(program, done, bucket.first_read, started)
            need(bucket.start, bucket.end)
            self._unmap(bucket.start, bucket.end)
        return done

    def _unmap(self, start: int, end: int) -> None:
        self._values.unmap(start, end)
        self._gradients.unmap(start, end)

    def _map(self, start: int, end: int) -> None:
        self._values.map(start, end)
        self._gradients.map(start, end)

    # Kernel launches

    def _start(self, program: list[list[Launch]], first: int, last: int, started: Started) -> int:
        queue = self._shared.queue
        enqueue = load_pyopencl().enqueue_nd_range_kernel
        with self._watchdog.call("start of the kernels") as call:
            for number in range(first, last):
                name = program[number][0].name
                call.begin(f"start of {name}")
                events = [enqueue(queue, each.kernel, each.size, each.group) for each in program[number]]
                started.append((name, events[-1]))
            queue.flush()
        return max(first, last)

    def _profile(self, program: list[list[Launch]], started: Started) -> Array:
        """Nanoseconds per op."""
        cl = load_pyopencl()
        queue = cl.CommandQueue(self._shared.device.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        events = [
            [cl.enqueue_nd_range_kernel(queue, each.kernel, each.size, each.group) for each in op] for op in program
        ]
        started += [(op[0].name, each[-1]) for op, each in zip(program, events, strict=True)]
        self._watchdog.wait(started)
        return np.array([sum(event.profile.end - event.profile.start for event in each) for each in events])

    def _evaluate(self, images: Array) -> Array:
        programs = self._programs[self._batch]
        started: Started = []
        with self._on_device(images, programs, started):
            self._upload_values(programs.evaluation, programs, None, started)
            self._start(programs.evaluation, 0, len(programs.evaluation), started)
        with self._device.reporting_errors():
            return self._read_rows(self._plan.evaluation.scores)

    def _read_rows(self, view: TensorView) -> Array:
        """A tensor in the arena, one row per image."""
        buffer, start = self._arena.resolve(self._plan.offsets[view.buffer])
        found = np.empty(view.buffer.bytes // FLOAT, np.float32)
        with self._watchdog.call("copy of the scores"):
            load_pyopencl().enqueue_copy(self._shared.queue, found, buffer, src_offset=start)
        self._shared.copied += found.nbytes
        rows = found.reshape(view.rows, view.ld)
        return rows[:, view.start : view.start + view.channels].reshape(self._batch, -1)


def _initial_vectors(shared: SharedMemory, plan: Plan) -> SharedBlock:
    """Per-channel vectors in device memory. Scales are 1 and shifts 0 until a batch normalization writes them."""
    lowered = plan.lowered
    block = SharedBlock(shared, max(lowered.vector_floats, 1) * FLOAT)
    vectors = block.array(np.float32)
    for affine in lowered.affines:
        vectors[affine.offset : affine.offset + affine.channels] = 1
    block.unmap_all()
    return block
