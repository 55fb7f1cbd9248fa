"""The OpenCL baseline: convolution by im2col and CLBlast GEMM, in an otherwise identical training step.

All other operations (depthwise convolution, pooling, normalization, loss) use our kernels, so only the matrix products
and the savings of operator fusion differ. 1x1 convolutions with stride 1 use the tensors in place. CLBlast has no
tuned parameters for PoCL, and Debian ships no tuners: `tune_for_cpu` sets the best of a few manually tested parameter
sets (1.6 times as fast as the CLBlast defaults).
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from phone_agent.backends.opencl.backend import OpenClExecutable
from phone_agent.backends.opencl.device import find_device, load_pyopencl
from phone_agent.backends.opencl.emit import Argument, Launch, LaunchBuilder, MemoryBinding, Scratch
from phone_agent.backends.opencl.launches import LAUNCH_BUILDERS
from phone_agent.backends.opencl.launches.convolution import bias_gradient
from phone_agent.backends.opencl.launches.operands import (
    Fields,
    gradient_arguments,
    input_arguments,
    int_field,
    pointer_field,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import fused_gradient_sums, statistics
from phone_agent.backends.opencl.launches.products import struct
from phone_agent.backends.opencl.program import COMMON, OPTIONS, SOURCES
from phone_agent.core.ops import Kind
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.ops import FLOAT, MemorySpace, OpSpec, Pointer, SharedStruct
from phone_agent.nn.plan.options import Options

KERNELS = Path(__file__).parent / "kernels" / "im2col.cl"
WIDTH = 16
ROW_MAJOR, NO, YES = 101, 111, 112  # CLBlast constants for layout and transposition


class ClblastError(Exception):
    """CLBlast is missing or reported an error."""


@cache
def _library() -> Any:
    name = ctypes.util.find_library("clblast")
    if name is None:
        raise ClblastError("libclblast not found: apt-get install libclblast-dev")
    return ctypes.CDLL(name)


# No local memory, because a CPU has none; register tiles of 8 x 8.
CPU_PARAMETERS = {
    "GEMMK": 0, "KREG": 1, "KWG": 32, "KWI": 2, "MDIMA": 8, "MDIMC": 8, "MWG": 64, "NDIMB": 8, "NDIMC": 8, "NWG": 64,
    "SA": 0, "SB": 0, "STRM": 0, "STRN": 0, "VWM": 4, "VWN": 4,
}  # fmt: skip
SINGLE = 32  # CLBlast constant for float


def tune_for_cpu() -> None:
    """Set GEMM parameters for this process."""
    names = (ctypes.c_char_p * len(CPU_PARAMETERS))(*(name.encode() for name in CPU_PARAMETERS))
    values = (ctypes.c_size_t * len(CPU_PARAMETERS))(*CPU_PARAMETERS.values())
    handle, count = ctypes.c_void_p(find_device().handle.int_ptr), ctypes.c_size_t(len(CPU_PARAMETERS))
    status = _library().CLBlastOverrideParameters(handle, b"Xgemm", SINGLE, count, names, values)
    if status:
        raise ClblastError(f"CLBlast rejected the GEMM parameters: status {status}")


@dataclass(frozen=True)
class Matrix:
    """Rows of floats in a buffer; `at` and `ld` in floats."""

    buffer: Any
    at: int
    ld: int
    transposed: bool = False


def sgemm(queue: Any, size: tuple[int, int, int], a: Matrix, b: Matrix, c: Matrix, *, adding: bool = False) -> None:
    """c (+)= a b, of size (rows, columns, depth)."""
    where = ctypes.c_void_p(queue.int_ptr)
    operands = [
        (ctypes.c_void_p(each.buffer.int_ptr), ctypes.c_size_t(each.at), ctypes.c_size_t(each.ld)) for each in (a, b, c)
    ]
    status = _library().CLBlastSgemm(
        ROW_MAJOR, YES if a.transposed else NO, YES if b.transposed else NO, *map(ctypes.c_size_t, size),
        ctypes.c_float(1), *operands[0], *operands[1], ctypes.c_float(float(adding)), *operands[2],
        ctypes.byref(where), None,
    )  # fmt: skip
    if status:
        raise ClblastError(f"CLBlast rejected a GEMM of size {size}: status {status}")


@dataclass(frozen=True)
class Operand:
    """A matrix whose memory is not bound yet."""

    argument: Pointer | Scratch
    ld: int
    offset: int = 0  # floats
    transposed: bool = False

    def matrix(self, memory: MemoryBinding, images: Any) -> Matrix:
        if isinstance(self.argument, Scratch):
            return Matrix(memory.scratch, self.argument.offset // FLOAT + self.offset, self.ld, self.transposed)
        if self.argument.buffer.space == MemorySpace.IMAGES:
            return Matrix(images, self.argument.offset // FLOAT + self.offset, self.ld, self.transposed)
        buffer, start = memory.resolve(self.argument)
        return Matrix(buffer, start // FLOAT + self.offset, self.ld, self.transposed)


@dataclass(eq=False)
class Multiply:
    """A CLBlast GEMM, used in place of a kernel launch."""

    name: str
    size: tuple[int, int, int]
    operands: tuple[Operand, Operand, Operand]
    adding: bool
    _memory: list[Any] = field(default_factory=list)
    _images: list[Any] = field(default_factory=list)

    def bind(self, memory: MemoryBinding) -> None:
        self._memory[:] = [memory]

    def point_at_images(self, buffer: Any, _start: int) -> None:
        self._images[:] = [buffer]

    def enqueue(self, queue: Any) -> None:
        images = self._images[0] if self._images else None
        a, b, c = (each.matrix(self._memory[0], images) for each in self.operands)
        sgemm(queue, self.size, a, b, c, adding=self.adding)


Operation = Launch | Multiply


@cache
def _program(x: str, y: str) -> Any:
    text = (SOURCES / COMMON).read_text() + KERNELS.read_text()
    defines = [f"-DX={x}", f"-DY={y}", f"-DWIDTH={WIDTH}", "-DTAIL=1"]
    return load_pyopencl().Program(find_device().context, text).build([*OPTIONS, *defines])


class Lowered:
    """A convolution lowered to im2col and GEMM."""

    def __init__(self, step: OpSpec, make: LaunchBuilder) -> None:
        self.step, self.make, self.g = step, make, struct_field(step.fields["g"])
        g = self.g
        self.groups = int_field(g, "groups")
        self.rows = int_field(g, "batch") * int_field(g, "out_h") * int_field(g, "out_w")
        self.pixels = int_field(g, "batch") * int_field(g, "in_h") * int_field(g, "in_w")
        self.channels, self.filters = int_field(g, "in_c") // self.groups, int_field(g, "out_c") // self.groups
        self.taps = int_field(g, "kernel_h") * int_field(g, "kernel_w")
        self.depth = self.taps * self.channels
        plain = (
            self.taps == 1 and int_field(g, "stride") == 1 and not int_field(g, "pad_h") and not int_field(g, "pad_w")
        )
        self.pointwise = plain and self.groups == 1

    def weights(self, name: str, group: int, *, transposed: bool = False) -> Operand:
        return Operand(
            _required(pointer_field(self.step.fields, name)),
            int_field(self.g, "out_c"),
            group * self.filters,
            transposed,
        )

    def columns(self, group: int, room: Scratch | None) -> tuple[list[Launch], Operand]:
        x = struct_field(self.step.fields["x"])
        if room is None:
            return [], Operand(_required(pointer_field(x, "data")), int_field(x, "ld"))
        arguments = (self._geometry(), *input_arguments(x), room, group)
        made = self._launch("im2col", arguments, (self.taps, self.rows), x=tensor_field(x, "data").type)
        return [made], Operand(room, self.depth)

    def room(self) -> Scratch | None:
        """Scratch memory for the im2col matrix, or None if the input can be used directly."""
        x = struct_field(self.step.fields.get("x") or {})
        return None if self.pointwise and not x.get("scale") else self.make.scratch(self.rows * self.depth)

    def scatter(self, room: Scratch, dx: Fields, group: int) -> Launch:
        arguments = (self._geometry(), room, *gradient_arguments(dx), group)
        items = (-(-self.channels // WIDTH), self.pixels)
        return self._launch("col2im", arguments, items, y=tensor_field(dx, "y").type)

    def finish(self) -> Launch:
        step, bias = self.step.fields, pointer_field(self.step.fields, "bias")
        channels = int_field(self.g, "out_c")
        numbers = (self.rows, channels, int_field(step, "ld_y"), int_field(step, "act"), int(bias is not None))
        return self._launch(
            "bias_activation", (pointer_field(step, "y"), bias, *numbers), (-(-channels // WIDTH), self.rows)
        )

    def _geometry(self) -> np.generic:
        return struct({name: int(value) for name, value in self.g.items() if isinstance(value, int)})

    def _launch(
        self, name: str, arguments: Sequence[Argument], items: tuple[int, int], x: str = "float", y: str = "float"
    ) -> Launch:
        kernel = load_pyopencl().Kernel(_program(x, y), name)
        return self.make.launch(kernel, arguments, items, (1, min(64, max(1, items[1]))))


def _required(pointer: Pointer | None) -> Pointer:
    if pointer is None:
        raise ClblastError("an operation has no tensor for a required operand")
    return pointer


def _forward(step: OpSpec, make: LaunchBuilder) -> Iterator[Operation]:
    low, norm = Lowered(step, make), step.fields.get("norm")
    room, y, ld = low.room(), _required(pointer_field(step.fields, "y")), int_field(step.fields, "ld_y")
    for group in range(low.groups):
        launches, columns = low.columns(group, room)
        yield from launches
        to = Operand(y, ld, group * low.filters)
        operands = (columns, low.weights("weights", group), to)
        yield Multiply(step.name, (low.rows, low.filters, low.depth), operands, adding=False)
    if step.fields.get("bias") or int_field(step.fields, "act"):
        yield low.finish()
    if isinstance(norm, SharedStruct):
        yield from statistics(make, norm, tensor_field(step.fields, "y"), low.rows, ld)


def _backward_data(step: OpSpec, make: LaunchBuilder) -> Iterator[Operation]:
    low, dx = Lowered(step, make), struct_field(step.fields["dx"])
    dy, ld = _required(pointer_field(step.fields, "dy")), int_field(step.fields, "ld_dy")
    straight = low.pointwise and not int_field(dx, "act")
    room = None if straight else make.scratch(low.rows * low.depth)
    for group in range(low.groups):
        to = Operand(room, low.depth) if room else Operand(_required(pointer_field(dx, "data")), int_field(dx, "ld"))
        operands = (Operand(dy, ld, group * low.filters), low.weights("weights", group, transposed=True), to)
        adding = straight and bool(int_field(dx, "accumulate"))
        yield Multiply(step.name, (low.rows, low.depth, low.filters), operands, adding=adding)
        if room:
            yield low.scatter(room, dx, group)
    yield from fused_gradient_sums(make, dx, low.pixels)


def _backward_weights(step: OpSpec, make: LaunchBuilder) -> Iterator[Operation]:
    low = Lowered(step, make)
    room, dy, ld = low.room(), _required(pointer_field(step.fields, "dy")), int_field(step.fields, "ld_dy")
    for group in range(low.groups):
        launches, columns = low.columns(group, room)
        yield from launches
        turned = Operand(columns.argument, columns.ld, columns.offset, transposed=True)
        operands = (turned, Operand(dy, ld, group * low.filters), low.weights("dweights", group))
        yield Multiply(step.name, (low.depth, low.filters, low.rows), operands, adding=make.accumulate)
    if step.fields.get("dbias") is not None:
        yield from bias_gradient(step, make, low.rows, int_field(low.g, "out_c"))


BASELINE: dict[Kind, Any] = {
    Kind.CONV_FORWARD: _forward,
    Kind.CONV_BACKWARD_DATA: _backward_data,
    Kind.CONV_BACKWARD_WEIGHTS: _backward_weights,
}


class ClblastExecutable(OpenClExecutable):
    """Our executable with im2col and CLBlast convolutions."""

    def __init__(self, graph: Graph, state: State, batch: int, options: Options) -> None:
        with patch.dict(LAUNCH_BUILDERS, BASELINE):
            super().__init__(graph, state, batch, options)

    def _start(self, program: list[list[Any]], first: int, last: int, started: Any) -> int:
        queue, enqueue = self._shared.queue, load_pyopencl().enqueue_nd_range_kernel
        for number in range(first, last):
            for each in program[number]:
                if isinstance(each, Multiply):
                    each.enqueue(queue)
                else:
                    enqueue(queue, each.kernel, each.size, each.group)
            started.append((program[number][0].name, load_pyopencl().enqueue_marker(queue)))
        queue.flush()
        return max(first, last)
