"""CPU backend: runs a plan with the core, in its own memory and on a thread pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.backends.planned_executable import OpTime, PlannedExecutable, check_batch, is_readable_in_place
from phone_agent.core.thread_pool import Program, ThreadPool, aligned
from phone_agent.nn.executable import GradientRequest
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.addresses import DRAW, LABELS, LOSS, WEIGHT
from phone_agent.nn.plan.buckets import Bucket, schedule_buckets
from phone_agent.nn.plan.emit import AddressMap, Emitter
from phone_agent.nn.plan.lowered_graph import LoweredGraph
from phone_agent.nn.plan.ops import FLOAT, MemorySpace, TensorView
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import Plan

Array = NDArray[Any]


class CpuBackend:
    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        return aligned(count, dtype)

    def compile(
        self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()
    ) -> CpuExecutable:
        return CpuExecutable(graph, state, batch, options, also)


class _Programs:
    """A plan for one batch size, emitted for the core."""

    def __init__(self, plan: Plan, bases: dict[MemorySpace, int], buckets: Sequence[Bucket]) -> None:
        self._plan, self._bases, self.buckets = plan, bases, buckets
        self.batch = plan.addresses.batch
        self.buckets_by_read = sorted(buckets, key=lambda bucket: bucket.first_read)
        self._emitters: list[Emitter] = []
        emit = self._emitter(accumulate=False).emit
        self._emitted = emit(plan.training.ops)
        self.training = Program.of(self._emitted)
        self.evaluation = Program.of(emit(plan.evaluation.ops))

    @cached_property
    def accumulating(self) -> Program:
        """Training that adds to the existing gradients."""
        middle, ops = self._plan.training.backward_start, self._plan.training.ops
        return Program.of([*self._emitted[:middle], *self._emitter(accumulate=True).emit(ops[middle:])])

    def set_image_address(self, address: int) -> None:
        for emitter in self._emitters:
            emitter.set_image_address(address)

    def _emitter(self, *, accumulate: bool) -> Emitter:
        self._emitters.append(Emitter(AddressMap(self._bases, self._plan.offsets), accumulate))
        return self._emitters[-1]


class CpuExecutable(PlannedExecutable[_Programs]):
    def __init__(self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()) -> None:
        super().__init__(graph, state, batch, replace(options, workspace=None), also)
        self._vectors = _initial_vectors(self._plan.lowered)
        self._step_io = aligned(LABELS + batch * FLOAT, np.uint8)
        self._loss = self._step_io[LOSS : LOSS + 8].view(np.float64)
        self._weight = self._step_io[WEIGHT : WEIGHT + 4].view(np.float32)
        self._draw = self._step_io[DRAW : DRAW + 8].view(np.uint64)
        self._labels = self._step_io[LABELS:].view(np.int32)
        self._copy: Array | None = None  # of images that the core cannot read in place
        self._arena = aligned(max(1, *(each.arena for each in self._plans.values())), np.uint8)
        self._programs = {size: self._program(each) for size, each in self._plans.items()}
        self._workspace = max(each.workspace for each in self._plans.values())
        self._pool = ThreadPool(options.threads, options.isa, self._workspace)

    def _add(self, plans: dict[int, Plan]) -> None:
        """Takes a few milliseconds per size."""
        arena = max((plan.arena for plan in plans.values()), default=0)
        if arena > self._arena.nbytes:
            self._arena = aligned(arena, np.uint8)
            self._programs = {size: self._program(self._plans[size]) for size in self._programs}
        workspace = max((plan.workspace for plan in plans.values()), default=0)
        if workspace > self._workspace:
            self._pool.close()
            self._workspace = workspace
            self._pool = ThreadPool(self._options.threads, self._options.isa, workspace)
        self._programs |= {size: self._program(plan) for size, plan in plans.items()}

    def _program(self, plan: Plan) -> _Programs:
        return _Programs(
            plan,
            self._base_addresses(),
            schedule_buckets(plan.training, self._state.packing, self._options.bucket_bytes),
        )

    def _evaluate(self, images: Array) -> Array:
        programs = self._programs[self._batch]
        self._bind_images(images, programs)
        self._pool.run(programs.evaluation)
        return self._read_rows(self._plan.evaluation.scores)

    def compute_gradients(self, request: GradientRequest) -> float:
        images, labels = request.images, request.labels
        check_batch(self._graph, self._programs, images, labels)
        self._labels[: len(labels)] = labels
        self._weight[0] = request.weight
        self._draw[0] = request.draw
        programs = self._programs[len(images)]
        program = programs.accumulating if request.accumulate else programs.training
        self._bind_images(images, programs)
        done = 0
        if request.need is not None:
            for bucket in programs.buckets_by_read:
                done = self._run(program, done, bucket.first_read)
                request.need(bucket.start, bucket.end)
        if request.ready is not None:
            for bucket in programs.buckets:
                done = self._run(program, done, bucket.complete_at)
                request.ready(bucket.start, bucket.end)
        self._run(program, done, len(program))
        return float(self._loss[0])

    def _run(self, program: Program, first: int, last: int) -> int:
        if first < last:
            self._pool.run(program, first, last)
        return last

    def profile(self, images: Array, labels: Array, runs: int = 1) -> list[OpTime]:
        """Time per op of a training step: the best of several runs. Overwrites the gradients, like any step."""
        check_batch(self._graph, self._programs, images, labels)
        self._labels[:], self._weight[0] = labels, 1.0
        programs = self._programs[self._batch]
        self._bind_images(images, programs)
        times = np.zeros(len(programs.training), np.int64)
        best = np.full(len(times), np.iinfo(np.int64).max)
        for _ in range(runs):
            self._pool.run(programs.training, nanoseconds=times)
            best = np.minimum(best, times)
        return self._op_times(best.tolist())

    def close(self) -> None:
        self._pool.close()

    def _base_addresses(self) -> dict[MemorySpace, int]:
        return {
            MemorySpace.ARENA: self._arena.ctypes.data,
            MemorySpace.VALUES: self._state.values.ctypes.data,
            MemorySpace.GRADIENTS: self._state.gradients.ctypes.data,
            MemorySpace.STATISTICS: self._state.statistics.ctypes.data,
            MemorySpace.VECTORS: self._vectors.ctypes.data,
            MemorySpace.IMAGES: 0,  # set for each batch
            MemorySpace.STEP_IO: self._step_io.ctypes.data,
        }

    def _bind_images(self, images: Array, programs: _Programs) -> None:
        """Let the programs read these images, or a copy if the core cannot read them in place."""
        if not is_readable_in_place(images, programs.batch):
            images = self._copy_images(images)
        self._bound = images  # keeps them alive while the programs point to them
        programs.set_image_address(images.ctypes.data)

    def _copy_images(self, images: Array) -> Array:
        if self._copy is None:
            self._copy = np.zeros((self._batch, *self._graph.shape), np.float32)
        self._copy[: len(images)] = images
        return self._copy

    def _read_rows(self, view: TensorView) -> Array:
        """A tensor in the arena, one row per image."""
        start = self._plan.offsets[view.buffer]
        rows = self._arena[start : start + view.buffer.bytes].view(np.float32).reshape(view.rows, view.ld)
        return rows[:, view.start : view.start + view.channels].reshape(self._batch, -1)


def _initial_vectors(lowered: LoweredGraph) -> Array:
    """Scales are 1 and shifts 0 until a batch normalization writes them."""
    vectors = aligned(max(lowered.vector_floats, 1))
    for affine in lowered.affines:
        vectors[affine.offset : affine.offset + affine.channels] = 1
    return vectors
