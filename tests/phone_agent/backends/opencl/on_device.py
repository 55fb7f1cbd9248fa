"""Runs the kernel cases of the core (tests/phone_agent/core/cases.py) on an OpenCL device.

Every block is surrounded by guard bytes, which are NaN and must not change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from phone_agent.backends.opencl.device import find_device, load_pyopencl
from phone_agent.backends.opencl.emit import LaunchBuilder
from phone_agent.backends.opencl.launches import build_launches
from phone_agent.backends.opencl.program import ProgramCache
from phone_agent.backends.opencl.tiles import Tiles, default_tiles
from phone_agent.core import ops
from phone_agent.core.ops import Kind
from phone_agent.nn.plan.ops import Buffer, Direction, Field, OpSpec, Pointer, SharedStruct
from tests.phone_agent.core.kernel_check import differences
from tests.phone_agent.core.memory import Array, Case, Memory

GUARD = 256  # bytes on either side
PATTERN = 0xFF  # bytes of which floats are NaN


@dataclass(frozen=True)
class _Blocks:
    """Device memory of the blocks of a case."""

    buffers: dict[int, Any]
    scratch: Any

    def resolve(self, pointer: Pointer) -> tuple[Any, int]:
        return self.buffers[id(pointer.buffer)], GUARD + pointer.offset


class _Reader:
    """Converts the op of a case to an op spec."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.accumulate = False
        self.buffers: dict[int, Buffer] = {}  # by block
        self._shared: dict[int, SharedStruct] = {}

    def step(self) -> OpSpec:
        fields = self._fields(ops.STRUCTS[self.case.kind], self.case.op, 0)
        return OpSpec(self.case.kind, self.case.name, Direction.FORWARD, fields)

    def _fields(self, layout: type[ctypes.Structure], block: Memory, start: int) -> dict[str, Field]:
        pointers = dict(block.pointers)
        values = layout.from_buffer_copy(block.data[start : start + ctypes.sizeof(layout)].tobytes())
        found: dict[str, Field] = {}
        for name, kind, *_ in layout._fields_:
            at = start + getattr(layout, name).offset
            if issubclass(kind, ctypes.Structure):
                found[name] = self._fields(kind, block, at)
            elif kind is ctypes.c_void_p:
                found[name] = self._pointer(name, pointers.get(at))
            else:
                found[name] = getattr(values, name)
        if layout in (ops.BatchNorm, ops.ConvBackwardWeights):
            self.accumulate |= bool(found["accumulate"])
        return found if found.get("data", True) else {}

    def _pointer(self, name: str, block: Memory | None) -> Field:
        if block is None:
            return None
        if name == "norm":
            return self._shared.setdefault(id(block), SharedStruct(self._fields(ops.BatchNorm, block, 0)))
        return Pointer(self.buffers.setdefault(id(block), Buffer(block.name, block.data.nbytes)))


@cache
def programs() -> ProgramCache:
    return ProgramCache(find_device())


def run(case: Case, tiles: Tiles | None = None) -> tuple[dict[int, Array], list[str]]:
    """The contents of each block afterwards, and which blocks were overrun."""
    cl, device = load_pyopencl(), find_device()
    reader = _Reader(case)
    step = reader.step()
    make = LaunchBuilder(programs(), tiles or default_tiles(device.limits), accumulate=reader.accumulate)
    made = build_launches(step, make)
    queue = cl.CommandQueue(device.context)
    blocks = {id(block): block for block in case.op.reachable()}
    held = {at: _upload(cl, device.context, blocks[at].content(1)) for at in reader.buffers}
    scratch = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, max(4, make.scratch_bytes))
    cl.enqueue_fill_buffer(queue, scratch, np.uint8(PATTERN), 0, scratch.size)
    memory = _Blocks({id(reader.buffers[at]): buffer for at, buffer in held.items()}, scratch)
    for launch in made:
        launch.bind(memory)
        cl.enqueue_nd_range_kernel(queue, launch.kernel, launch.size, launch.group)
    after = {at: block.content(1) for at, block in blocks.items()}
    wrong = []
    for at, buffer in held.items():
        whole = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(queue, whole, buffer)
        after[at] = _read(whole[GUARD:-GUARD], blocks[at].data.dtype)
        if (whole[:GUARD] != PATTERN).any() or (whole[-GUARD:] != PATTERN).any():
            wrong.append(f"{blocks[at].name}: wrote outside")
    return after, wrong


def wrong_in(case: Case, tiles: Tiles | None = None) -> Iterator[str]:
    after, wrong = run(case, tiles)
    yield from (f"{case.name}: {line}" for line in (*wrong, *differences(case, after, 1)))


def _upload(cl: Any, context: Any, content: Array) -> Any:
    """Doubles are converted to floats, since devices may not support doubles."""
    content = content.astype(np.float32) if content.dtype == np.float64 else content
    guard = np.full(GUARD, PATTERN, np.uint8)
    whole = np.concatenate([guard, content.view(np.uint8), guard])
    return cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=whole)


def _read(content: Array, dtype: Any) -> Array:
    return content.view(np.float32).astype(dtype) if dtype == np.float64 else content.view(dtype)


def planned(case: Case) -> bool:
    """OpenCL plans contain no Winograd, and no backward of an addition and a batch normalization in one op."""
    return "winograd" not in case.name and not (case.kind == Kind.BATCH_NORM_BACKWARD and "residual_sum" in case.name)
