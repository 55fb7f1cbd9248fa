"""Kernel launches: a kernel with its arguments, before and after they are bound to memory.

A launch refers to pointers. Each becomes two kernel arguments, `global T *buffer, long offset`, with the offset in
elements. So a plan is emitted once, and bound to memory when all of it is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from phone_agent.backends.opencl.device import Limits, load_pyopencl
from phone_agent.backends.opencl.program import Define, ProgramError
from phone_agent.backends.opencl.tiles import Tiles
from phone_agent.nn.plan.ops import FLOAT, Field, MemorySpace, Pointer

ALIGNMENT = 256
CHANNEL_GROUPS = (16, 32, 64)  # work-group widths; few, since drivers may recompile a kernel for every new group shape
WORK_GROUP_ITEMS = {"gpu": 128, "accelerator": 128, "cpu": 1024}  # work-items per group of kernels without local memory


@dataclass(frozen=True)
class Scratch:
    """Scratch memory for the duration of one op. `offset` in bytes; always floats."""

    offset: int


@dataclass(frozen=True)
class TypedPointer:
    """A pointer, and the bytes per element if not four."""

    pointer: Pointer | None
    item_bytes: int = FLOAT

    @property
    def type(self) -> str:
        """The OpenCL type."""
        return "half" if self.item_bytes == FLOAT // 2 else "float"


@dataclass(frozen=True)
class LocalMemory:
    """Local memory of a work-group."""

    bytes: int


# None: a null pointer. Integers are passed as int, other numbers as float.
Argument: TypeAlias = "Pointer | TypedPointer | Scratch | LocalMemory | int | float | np.generic | None"


class MemoryBinding(Protocol):
    def resolve(self, pointer: Pointer) -> tuple[Any, int]:
        """The buffer, and the byte offset in it."""
        ...

    @property
    def scratch(self) -> Any: ...


@dataclass(eq=False)
class Launch:
    """`size` work-items in groups of `group`, which divides it."""

    kernel: Any
    arguments: tuple[Argument, ...]
    size: tuple[int, ...]
    group: tuple[int, ...]
    name: str  # of the op
    # Arguments that point to the images, and their offsets
    _images: list[tuple[int, int]] = field(default_factory=list)

    def bind(self, memory: MemoryBinding) -> None:
        self._images.clear()
        at = 0
        for argument in self.arguments:
            at = self._set(at, argument, memory)

    def set_images(self, buffer: Any, start: int) -> None:
        """The images are in `buffer`, at byte `start`."""
        for at, offset in self._images:
            self._put(at, buffer, np.int64((start + offset) // FLOAT))

    def _set(self, at: int, argument: Argument, memory: MemoryBinding) -> int:
        match argument:
            case Pointer():
                return self._set_pointer(at, argument, FLOAT, memory)
            case TypedPointer(pointer, item_bytes) if pointer is not None:
                return self._set_pointer(at, pointer, item_bytes, memory)
            case None | TypedPointer():
                values: tuple[Any, ...] = None, np.int64(0)
            case Scratch(offset):
                values = memory.scratch, np.int64(offset // FLOAT)
            case _:
                values = (_scalar(argument),)
        return self._put(at, *values)

    def _set_pointer(self, at: int, pointer: Pointer, item_bytes: int, memory: MemoryBinding) -> int:
        if pointer.buffer.space == MemorySpace.IMAGES:
            self._images.append((at, pointer.offset))
            return at + 2
        buffer, offset = memory.resolve(pointer)
        return self._put(at, buffer, np.int64(offset // item_bytes))

    def _put(self, at: int, *values: Any) -> int:
        for value in values:
            self.kernel.set_arg(at, value)
            at += 1
        return at


class KernelSource(Protocol):
    """Provides compiled kernels of a device."""

    @property
    def limits(self) -> Limits: ...

    def kernel(self, file: str, name: str, defines: dict[str, Define]) -> Any: ...

    def max_work_group(self, kernel: Any) -> int: ...


@dataclass
class LaunchBuilder:
    """Builds launches. `accumulate`: parameter gradients are added to the existing ones."""

    kernels: KernelSource
    tiles: Tiles
    accumulate: bool = False
    scratch_bytes: int = 0  # of the op that needs most
    _op: str = ""
    _op_scratch: int = 0

    @property
    def limits(self) -> Limits:
        return self.kernels.limits

    def kernel(self, file: str, name: str, **defines: Define) -> Any:
        return self.kernels.kernel(file, name, defines)

    def scratch(self, count: int) -> Scratch:
        """Scratch for `count` floats until the last launch of the op. Each call within an op returns other memory."""
        found = Scratch(self._op_scratch)
        self._op_scratch += -(-count * FLOAT // ALIGNMENT) * ALIGNMENT
        self.scratch_bytes = max(self.scratch_bytes, self._op_scratch)
        return found

    def begin_op(self, name: str) -> None:
        self._op, self._op_scratch = name, 0

    def launch(self, kernel: Any, arguments: Sequence[Argument], items: Sequence[int], group: Sequence[int]) -> Launch:
        """At least `items` work-items, rounded up to whole groups, so the kernel must check its bounds."""
        most = self.kernels.max_work_group(kernel)
        if prod(group) > most:
            raise ProgramError(f"{kernel.function_name}: work-group {tuple(group)} exceeds the device limit of {most}")
        size = tuple(-(-max(1, count) // each) * each for count, each in zip(items, group, strict=True))
        return Launch(kernel, tuple(arguments), size, tuple(group), self._op)

    def launch_1d(self, kernel: Any, arguments: Sequence[Argument], count: int, group: int = 64) -> Launch:
        """One work-item for each of `count` elements."""
        return self.launch(kernel, arguments, (count,), (min(group, self.kernels.max_work_group(kernel)),))

    def launch_per_channel(self, kernel: Any, arguments: Sequence[Argument], channels: int, rows: int) -> Launch:
        """One work-item per channel and row. Neighboring work-items have neighboring channels."""
        most = min(WORK_GROUP_ITEMS[self.limits.kind], self.kernels.max_work_group(kernel))
        across = min(most, next((few for few in CHANNEL_GROUPS if channels <= few), CHANNEL_GROUPS[-1]))
        return self.launch(kernel, arguments, (channels, rows), (across, most // across))


def _scalar(argument: LocalMemory | float | np.generic) -> Any:
    match argument:
        case LocalMemory(count):
            return load_pyopencl().LocalMemory(count)
        case int():
            return np.int32(argument)
        case float():
            return np.float32(argument)
    return argument


def typed_pointer(pointer: Pointer | None, fields: Mapping[str, Field]) -> TypedPointer:
    """A pointer with the dtype given in the fields of its struct."""
    return TypedPointer(pointer, FLOAT // 2 if fields.get("dtype") else FLOAT)
