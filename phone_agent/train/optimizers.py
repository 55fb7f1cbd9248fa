"""Optimizers: one pass of the compute core over a part of the packed buffers, as soon as it is reduced."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.schema import OptimizerSpec
from phone_agent.core import ops
from phone_agent.core.thread_pool import Program, ThreadPool, aligned, workspace_bytes
from phone_agent.nn.packing import Packing, State
from phone_agent.train import optimizers_reference

Array = NDArray[Any]
_Held = ctypes.Array[ops.Segment]

METHODS = tuple(method.name.lower() for method in ops.OptimizerKind)
ADAPTIVE = frozenset({"lars", "lamb"})  # layer-wise adaptive: updates are scaled by the norm of each parameter
ROUND = 128 * 1024  # values that are read twice in a row: few enough to stay in cache


class Optimizer(Protocol):
    buffers: dict[str, Array]  # state from step to step, packed like the values

    def update(self, part: slice, rate: float, step: int) -> None:
        """Update a part, made of whole parameters, in step `step` counted from 1. Does not change the gradients."""
        ...


@dataclass(frozen=True)
class Segment:
    """A range of values with the same treatment, with its padding. If `adapted`, it is exactly one parameter."""

    start: int
    end: int
    decay: float
    adapted: bool


def build_optimizer(
    spec: OptimizerSpec,
    state: State,
    backend: str = "cpu",
    threads: int = 1,
    isa: str | None = None,
) -> Optimizer:
    """May be used from any thread, one at a time. Frozen parameters do not change."""
    check(spec)
    buffers = _buffers(spec, state)
    parts = _Segments(state.packing, spec)
    if backend == "reference":
        return NumpyOptimizer(spec, state, buffers, parts)
    return CoreOptimizer(spec, state, buffers, parts, threads=threads, isa=isa)


def check(spec: OptimizerSpec) -> None:
    if spec.name not in METHODS:
        raise BadRequestError(f"unknown optimizer '{spec.name}'; choose from: {', '.join(METHODS)}")
    if spec.epsilon <= 0:
        raise BadRequestError(f"epsilon is {spec.epsilon:g}, but must be positive: it prevents division by zero")


def state_names(spec: OptimizerSpec) -> tuple[str, ...]:
    """Names of the buffers it keeps from step to step, each with one number per parameter."""
    return ("momenta", "second_momenta") if spec.name == "lamb" else ("momenta",)


def _buffers(spec: OptimizerSpec, state: State) -> dict[str, Array]:
    _, *others = state_names(spec)
    return {"momenta": state.momenta} | {name: aligned(state.values.size, state.values.dtype) for name in others}


def segments(packing: Packing, spec: OptimizerSpec) -> list[Segment]:
    """Segments of trainable parameters, in buffer order. Vectors are biases or normalization parameters: never adapted,
    and decayed only with decay_all."""
    each = [
        Segment(slot.offset, slot.end, *_treatment(len(slot.shape) > 1, spec))
        for slot in packing.slots.values()
        if slot.offset < packing.trainable_size
    ]
    return each if spec.name in ADAPTIVE else _merged(each)


def _treatment(is_matrix: bool, spec: OptimizerSpec) -> tuple[float, bool]:  # noqa: FBT001 - a property of a shape
    return spec.weight_decay if is_matrix or spec.decay_all else 0.0, is_matrix and spec.name in ADAPTIVE


def _merged(each: Sequence[Segment]) -> list[Segment]:
    """Neighbors with the same treatment, merged."""
    merged: list[Segment] = []
    for segment in each:
        last = merged[-1] if merged else None
        if last is not None and last.end == segment.start and last.decay == segment.decay:
            merged[-1] = Segment(last.start, segment.end, last.decay, adapted=False)
        else:
            merged.append(segment)
    return merged


class _Segments:
    """Finds the segments within a part of the buffers."""

    def __init__(self, packing: Packing, spec: OptimizerSpec) -> None:
        self._size = packing.size
        self._borders = {slot.offset for slot in packing.slots.values()} | {packing.size}
        self.all = segments(packing, spec)

    def bounds(self, part: slice) -> tuple[int, int]:
        start, end, step = part.indices(self._size)
        if step != 1 or not {start, end} <= self._borders:
            raise BadRequestError(f"values {start} to {end} (step {step}) are not a whole number of parameters")
        return start, end

    def within(self, start: int, end: int) -> list[Segment]:
        return [
            Segment(max(start, each.start), min(end, each.end), each.decay, each.adapted)
            for each in self.all
            if each.start < end and each.end > start
        ]


class NumpyOptimizer:
    """The reference: in the precision of the state. Tests compare the core with it."""

    def __init__(self, spec: OptimizerSpec, state: State, buffers: dict[str, Array], parts: _Segments) -> None:
        self._spec, self._state, self._parts, self.buffers = spec, state, parts, buffers

    def update(self, part: slice, rate: float, step: int) -> None:
        for each in self._parts.within(*self._parts.bounds(part)):
            place = slice(each.start, each.end)
            moments = [buffer[place] for buffer in self.buffers.values()]
            values, gradients = self._state.values[place], self._state.gradients[place]
            rule = optimizers_reference.Rule(self._spec, each.decay, each.adapted, rate, step)
            optimizers_reference.BY_NAME[self._spec.name](rule, values, gradients, *moments)


class CoreOptimizer:
    """Caches a program for every part: training always updates the same ones."""

    def __init__(
        self,
        spec: OptimizerSpec,
        state: State,
        buffers: dict[str, Array],
        parts: _Segments,
        *,
        threads: int,
        isa: str | None,
    ) -> None:
        self._spec, self._state, self._parts, self.buffers = spec, state, parts, buffers
        self._check()
        self._params = ops.OptimizerParams(
            trust_coefficient=spec.lars_coefficient,
            epsilon=spec.epsilon,
            momentum=spec.momentum,
            one_minus_momentum=1 - spec.momentum,
            beta2=spec.beta2,
            one_minus_beta2=1 - spec.beta2,
        )
        everything, _ = self._op(parts.all)
        self._pool = ThreadPool(threads, isa, workspace_bytes(threads, [(ops.Kind.OPTIMIZER_UPDATE, everything)], isa))
        self._programs: dict[tuple[int, int], tuple[Program, list[_Held]]] = {}

    def update(self, part: slice, rate: float, step: int) -> None:
        bounds = self._parts.bounds(part)
        if bounds not in self._programs:
            self._programs[bounds] = self._program(*bounds)
        self._params.lr = rate
        self._params.bias_correction = optimizers_reference.correction(self._spec.momentum, step)
        self._params.bias_correction2 = optimizers_reference.correction(self._spec.beta2, step)
        self._pool.run(self._programs[bounds][0])

    def close(self) -> None:
        self._pool.close()

    def _program(self, start: int, end: int) -> tuple[Program, list[_Held]]:
        made = [self._op(each) for each in _rounds(self._parts.within(start, end))]
        return Program.of((ops.Kind.OPTIMIZER_UPDATE, op) for op, _ in made), [held for _, held in made]

    def _op(self, together: Sequence[Segment]) -> tuple[ops.OptimizerUpdate, _Held]:
        """The op points to the second result, which must live as long."""
        held: _Held = (ops.Segment * len(together))(*map(_in_core, together))
        state, second = self._state, self.buffers.get("second_momenta")
        op = ops.OptimizerUpdate(
            weights=state.values.ctypes.data,
            momenta=state.momenta.ctypes.data,
            second_moments=None if second is None else second.ctypes.data,
            gradients=state.gradients.ctypes.data,
            params=ctypes.addressof(self._params),
            segments=ctypes.addressof(held),
            count=len(held),
            optimizer=ops.OptimizerKind[self._spec.name.upper()],
        )
        return op, held

    def _check(self) -> None:
        for buffer in (self._state.values, self._state.gradients, *self.buffers.values()):
            if buffer.dtype != np.float32 or not buffer.flags.c_contiguous:
                raise BadRequestError(f"the core computes in float32, but a buffer is {buffer.dtype}")


def _in_core(segment: Segment) -> ops.Segment:
    return ops.Segment(segment.start, segment.end - segment.start, segment.decay, segment.adapted)


def _rounds(each: Sequence[Segment]) -> list[list[Segment]]:
    """Groups of segments whose norms are computed and then applied together, while they are in cache."""
    rounds: list[list[Segment]] = []
    room = 0
    for segment in each:
        if room <= 0:
            rounds.append([])
            room = ROUND
        rounds[-1].append(segment)
        room -= segment.end - segment.start
    return rounds
