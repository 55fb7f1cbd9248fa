"""An OpenCL device as a backend: the plan as launches of kernels, in memory that the host sees as well.

Values, gradients, statistics and images stay where they are: what the device is to read or write is given to it, and
taken back when it has finished, part by part, so that the host sends one part while the device computes the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.backends.checks import check_batch
from phone_agent.backends.opencl import tiles
from phone_agent.backends.opencl.device import Device, DeviceError, find_device, load_pyopencl
from phone_agent.backends.opencl.device_memory import (
    Arena,
    BufferBindings,
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
from phone_agent.backends.planned_executable import OpTime, PlannedExecutable, is_readable_in_place
from phone_agent.nn.executable import GradientRequest, ValuesNeeded
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.addresses import DRAW, LABELS, LOSS, WEIGHT
from phone_agent.nn.plan.buckets import Bucket, bucket_slices, schedule_buckets
from phone_agent.nn.plan.ops import FLOAT, MemorySpace, OpSpec, TensorView
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import Plan

Array = NDArray[Any]
Started = list[tuple[str, Any]]  # the name of a step, and the event of its last launch


@dataclass(frozen=True)
class _Engine:
    """What all that computes in this process has in common: contexts do not mix."""

    shared: SharedMemory
    programs: ProgramCache
    watchdog: Watchdog


_STARTING = Lock()


def _engine() -> _Engine:
    with _STARTING:  # or two threads would start two
        return _started()


@cache
def _started() -> _Engine:
    device = find_device()
    return _Engine(SharedMemory(device), ProgramCache(device), Watchdog(device.identity.device))


class OpenClBackend:
    """Raises NoDeviceError where there is nothing to compute on."""

    def __init__(self) -> None:
        self.shared = _engine().shared

    @property
    def device(self) -> Device:
        return self.shared.device

    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        return self.shared.array(count, dtype)

    def compile(
        self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()
    ) -> OpenClExecutable:
        return OpenClExecutable(graph, state, batch, options, also)


class _Emitted:
    """A plan for one size of batch as launches, one list a step."""

    def __init__(self, plan: Plan, cut: Sequence[Bucket], maker: LaunchBuilder) -> None:
        self.plan, self._maker = plan, maker
        self.batch = plan.addresses.batch
        self.buckets = cut
        self.gates = sorted(cut, key=lambda bucket: bucket.first_read)
        self.training = _launches(plan.training.ops, maker)
        self.evaluation = _launches(plan.evaluation.ops, maker)

    @cached_property
    def adding(self) -> list[list[Launch]]:
        """Training that adds its gradients to those that are there."""
        middle = self.plan.training.backward_start
        self._maker.adding = True
        return [*self.training[:middle], *_launches(self.plan.training.ops[middle:], self._maker)]

    @property
    def scratch_bytes(self) -> int:
        return self._maker.scratch_bytes

    def bind(self, places: BufferBindings) -> None:
        for launch in self._all():
            launch.bind(places)

    def point_at_images(self, buffer: Any, start: int) -> None:
        for launch in self._all():
            launch.point_at_images(buffer, start)

    def _all(self) -> Iterator[Launch]:
        backward = self.plan.training.backward_start
        adding = self.adding[backward:] if "adding" in self.__dict__ else []
        for each in (*self.training, *self.evaluation, *adding):
            yield from each


def _launches(steps: Sequence[OpSpec], maker: LaunchBuilder) -> list[list[Launch]]:
    return [build_launches(step, maker) for step in steps]


class OpenClExecutable(PlannedExecutable[_Emitted]):
    def __init__(self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()) -> None:
        engine = _engine()
        self._shared, self._compiled, self._watchdog = engine.shared, engine.programs, engine.watchdog
        device = self._shared.device
        self._piece = arena_segment_bytes(device.limits)
        super().__init__(graph, state, batch, options_for_device(options, device.limits), also)
        self._tiles = replace(tiles.default_tiles(device.limits), **dict(options.tiles))
        self._cut = [(part.start, part.stop) for part in bucket_slices(state.packing, options.bucket_bytes)]
        self._values = make_device_array(self._shared, state.values, self._cut)
        self._gradients = make_device_array(self._shared, state.gradients, self._cut)
        self._statistics = make_device_array(self._shared, state.statistics, [(0, state.statistics.size)])
        self._vectors = _vectors(self._shared, self._plan)
        self._cells = SharedBlock(self._shared, LABELS + batch * FLOAT)
        self._copy: SharedBlock | None = None  # of images that cannot be read where they are
        self._arena, self._scratch = Arena(self._shared, 0, self._piece), self._shared.device_buffer(FLOAT)
        self._add(self._plans)

    @property
    def copied(self) -> int:
        """Bytes that travelled between host and device so far, in all of this process."""
        return self._shared.copied

    def compute_gradients(self, request: GradientRequest) -> float:
        images, ready = request.images, request.ready
        check_batch(self._graph, self._programs, images, request.labels)
        self._tell(request.labels, request.weight, request.draw)
        programs = self._programs[len(images)]
        program = self._adding(programs) if request.accumulate else programs.training
        started: Started = []
        with self._lent(images, programs, started):
            self._start(program, self._gates(program, programs, request.need, started), len(program), started)
            if ready is not None:
                for bucket in programs.buckets:
                    self._watchdog.wait(started[: bucket.complete_at])
                    self._take(bucket.start, bucket.end)
                    ready(bucket.start, bucket.end)
        return float(self._cells.array()[LOSS : LOSS + 4].view(np.float32)[0])

    def profile(self, images: Array, labels: Array, runs: int = 1) -> list[OpTime]:
        """Where a step's time goes, by step: the best of some runs. Fills the gradients, like any step."""
        check_batch(self._graph, [self._batch], images, labels)
        self._tell(labels, 1.0, 0)
        programs = self._programs[self._batch]
        best = np.full(len(programs.training), np.iinfo(np.int64).max)
        for _ in range(runs):
            started: Started = []
            with self._lent(images, programs, started):
                self._gates(programs.training, programs, None, started)
                self._shared.queue.finish()
                best = np.minimum(best, self._timed(programs.training, started))
        return self._op_times(best.tolist())

    def close(self) -> None:
        self._shared.queue.finish()

    # Which memory programs run in

    def _add(self, plans: dict[int, Plan]) -> None:
        made = [self._emitted(plan) for plan in plans.values()]
        self._programs |= {each.batch: each for each in made}
        self._make_room(made)

    def _emitted(self, plan: Plan) -> _Emitted:
        cut = schedule_buckets(plan.training, self._state.packing, self._options.bucket_bytes)
        return _Emitted(plan, cut, LaunchBuilder(self._compiled, self._tiles))

    def _adding(self, programs: _Emitted) -> list[list[Launch]]:
        if "adding" not in programs.__dict__:
            _ = programs.adding
            self._make_room([programs])
        return programs.adding

    def _make_room(self, new: Sequence[_Emitted]) -> None:
        """For these as well, and binds them to it; all of them where it had to grow."""
        arena = max((each.plan.arena for each in new), default=0)
        scratch = max((each.scratch_bytes for each in new), default=0)
        if arena > self._arena.bytes or scratch > self._scratch.size:
            self._arena = Arena(self._shared, max(arena, self._arena.bytes), self._piece)
            self._scratch = self._shared.device_buffer(max(scratch, self._scratch.size))
            new = [*self._programs.values()]
        for each in new:
            each.bind(self._places(each.plan))
        self.memory = replace(self.memory, workspace=self._scratch.size)

    def _places(self, plan: Plan) -> BufferBindings:
        buffers = {
            MemorySpace.VALUES: self._values.buffer,
            MemorySpace.GRADIENTS: self._gradients.buffer,
            MemorySpace.STATISTICS: self._statistics.buffer,
            MemorySpace.VECTORS: self._vectors,
            MemorySpace.STEP_IO: self._cells.buffer,
        }
        return BufferBindings(buffers, self._arena, plan.offsets, self._scratch)

    # What a step hands over, and when

    def _tell(self, labels: Array, weight: float, draw: int) -> None:
        cells = self._cells.array()
        cells[LABELS:].view(np.int32)[: len(labels)] = labels
        cells[WEIGHT : WEIGHT + 4].view(np.float32)[0] = weight
        cells[DRAW : DRAW + 8].view(np.uint64)[0] = draw

    @contextmanager
    def _lent(self, images: Array, programs: _Emitted, started: Started) -> Iterator[None]:
        """Whatever happens, all is the host's again afterwards; what was started is over by then."""
        shown = self._shown(images, programs)
        programs.point_at_images(shown.buffer, 0)
        whole = self._state.statistics.size
        for block in (shown, self._cells):
            block.give_all()
        self._statistics.give(0, whole)
        cl = load_pyopencl()
        try:
            yield
        except cl.Error as error:
            raise DeviceError(f"OpenCL device {self._shared.device.identity.device} failed: {error}") from error
        finally:
            self._watchdog.wait(started)
            for block in (shown, self._cells):
                block.take_all()
            self._statistics.take(0, whole)
            for start, end in self._cut:
                self._take(start, end)

    def _shown(self, images: Array, programs: _Emitted) -> SharedBlock:
        """The memory of these images; of a copy, where they are not what the device can read."""
        block = block_of(images) if is_readable_in_place(images, programs.batch) else None
        if block is not None and block.address == images.ctypes.data:
            return block
        if self._copy is None:
            self._copy = SharedBlock(self._shared, self._batch * prod(self._graph.shape) * FLOAT)
        copy = self._copy.array(np.float32)[: images.size]
        copy[:] = images.reshape(-1)
        self._shared.copied += copy.nbytes
        return self._copy

    def _gates(
        self, program: list[list[Launch]], programs: _Emitted, need: ValuesNeeded | None, started: Started
    ) -> int:
        """Gives the values, each part when it is complete; meanwhile starts what can do without. How many steps."""
        if need is None:
            for start, end in self._cut:
                self._give(start, end)
            return 0
        done = 0
        for bucket in programs.gates:
            done = self._start(program, done, bucket.first_read, started)
            need(bucket.start, bucket.end)
            self._give(bucket.start, bucket.end)
        return done

    def _give(self, start: int, end: int) -> None:
        self._values.give(start, end)
        self._gradients.give(start, end)

    def _take(self, start: int, end: int) -> None:
        self._values.take(start, end)
        self._gradients.take(start, end)

    # What the device does

    def _start(self, program: list[list[Launch]], first: int, last: int, started: Started) -> int:
        queue = self._shared.queue
        enqueue = load_pyopencl().enqueue_nd_range_kernel
        for number in range(first, last):
            events = [enqueue(queue, each.kernel, each.size, each.group) for each in program[number]]
            started.append((program[number][0].name, events[-1]))
        queue.flush()
        return max(first, last)

    def _timed(self, program: list[list[Launch]], started: Started) -> Array:
        """Nanoseconds of each step."""
        cl = load_pyopencl()
        queue = cl.CommandQueue(self._shared.device.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        events = [
            [cl.enqueue_nd_range_kernel(queue, each.kernel, each.size, each.group) for each in step] for step in program
        ]
        started += [(step[0].name, each[-1]) for step, each in zip(program, events, strict=True)]
        self._watchdog.wait(started)
        return np.array([sum(event.profile.end - event.profile.start for event in each) for each in events])

    def _evaluate(self, images: Array) -> Array:
        programs = self._programs[self._batch]
        started: Started = []
        with self._lent(images, programs, started):
            self._gates(programs.evaluation, programs, None, started)
            self._start(programs.evaluation, 0, len(programs.evaluation), started)
        return self._stored(self._plan.evaluation.scores)

    def _stored(self, view: TensorView) -> Array:
        """One row an image of what the program left in the arena."""
        buffer, start = self._arena.of(self._plan.offsets[view.buffer])
        found = np.empty(view.buffer.bytes // FLOAT, np.float32)
        load_pyopencl().enqueue_copy(self._shared.queue, found, buffer, src_offset=start)
        self._shared.copied += found.nbytes
        rows = found.reshape(view.rows, view.ld)
        return rows[:, view.start : view.start + view.channels].reshape(self._batch, -1)


def _vectors(shared: SharedMemory, plan: Plan) -> Any:
    """The device's own. Scales are 1 and shifts 0 until a normalisation says otherwise."""
    network = plan.lowered
    block = SharedBlock(shared, max(network.vector_floats, 1) * FLOAT)
    vectors = block.array(np.float32)
    for scales in network.affines:
        vectors[scales.offset : scales.offset + scales.channels] = 1
    block.give_all()
    return block.buffer
