"""From steps to launches: what a kernel is started with, before and after memory is there.

A launch names places; each is two arguments of its kernel, `global T *buffer, long offset`, the offset in numbers of
the type they are stored as. So a plan can be emitted once, and bound to memory when all of it is known.
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
CHANNEL_GROUPS = (16, 32, 64)  # channels of a group: a compiler may take its time for every other shape of groups
WORK_GROUP_ITEMS = {"gpu": 128, "accelerator": 128, "cpu": 1024}  # work-items of a group that has nothing to share


@dataclass(frozen=True)
class Scratch:
    """Memory for the length of one step. `offset` in bytes; always of floats."""

    offset: int


@dataclass(frozen=True)
class TypedPointer:
    """A place, and the bytes of a number in it where that is not four."""

    place: Pointer | None
    item: int = FLOAT

    @property
    def type(self) -> str:
        """As kernels are told."""
        return "half" if self.item == FLOAT // 2 else "float"


@dataclass(frozen=True)
class LocalMemory:
    """Local memory of a work-group."""

    bytes: int


# None: a place that is not there. Whole numbers travel as int, others as float.
Argument: TypeAlias = "Pointer | TypedPointer | Scratch | LocalMemory | int | float | np.generic | None"


class MemoryBinding(Protocol):
    def of(self, place: Pointer) -> tuple[Any, int]:
        """The buffer it lies in, and how many bytes into that."""
        ...

    @property
    def scratch(self) -> Any: ...


@dataclass(eq=False)
class Launch:
    """`size` work-items in groups of `group`, which divides it; as the kernel was compiled."""

    kernel: Any
    arguments: tuple[Argument, ...]
    size: tuple[int, ...]
    group: tuple[int, ...]
    name: str  # of the step
    _images: list[tuple[int, int]] = field(default_factory=list)  # arguments that point at the batch, and where in it

    def bind(self, memory: MemoryBinding) -> None:
        self._images.clear()
        at = 0
        for argument in self.arguments:
            at = self._set(at, argument, memory)

    def point_at_images(self, buffer: Any, start: int) -> None:
        """The batch lies in `buffer`, `start` bytes into it."""
        for at, offset in self._images:
            self._put(at, buffer, np.int64((start + offset) // FLOAT))

    def _set(self, at: int, argument: Argument, memory: MemoryBinding) -> int:
        match argument:
            case Pointer():
                return self._point(at, argument, FLOAT, memory)
            case TypedPointer(place, item) if place is not None:
                return self._point(at, place, item, memory)
            case None | TypedPointer():
                values: tuple[Any, ...] = None, np.int64(0)
            case Scratch(offset):
                values = memory.scratch, np.int64(offset // FLOAT)
            case _:
                values = (_scalar(argument),)
        return self._put(at, *values)

    def _point(self, at: int, place: Pointer, item: int, memory: MemoryBinding) -> int:
        if place.buffer.space == MemorySpace.IMAGES:
            self._images.append((at, place.offset))
            return at + 2
        buffer, offset = memory.of(place)
        return self._put(at, buffer, np.int64(offset // item))

    def _put(self, at: int, *values: Any) -> int:
        for value in values:
            self.kernel.set_arg(at, value)
            at += 1
        return at


class Kernels(Protocol):
    """Where kernels come from: the programs of a device."""

    @property
    def limits(self) -> Limits: ...

    def kernel(self, file: str, name: str, defines: dict[str, Define]) -> Any: ...

    def most_items(self, kernel: Any) -> int: ...


@dataclass
class LaunchBuilder:
    """What makers of launches ask for. `adding`: gradients of parameters are added to those that are there."""

    kernels: Kernels
    tiles: Tiles
    adding: bool = False
    scratch_bytes: int = 0  # what the hungriest step takes
    _step: str = ""
    _step_scratch: int = 0

    @property
    def limits(self) -> Limits:
        return self.kernels.limits

    def kernel(self, file: str, name: str, **defines: Define) -> Any:
        return self.kernels.kernel(file, name, defines)

    def scratch(self, count: int) -> Scratch:
        """Room for `count` floats until the step's last launch; different each time within a step."""
        found = Scratch(self._step_scratch)
        self._step_scratch += -(-count * FLOAT // ALIGNMENT) * ALIGNMENT
        self.scratch_bytes = max(self.scratch_bytes, self._step_scratch)
        return found

    def begin_step(self, name: str) -> None:
        self._step, self._step_scratch = name, 0

    def launch(self, kernel: Any, arguments: Sequence[Argument], items: Sequence[int], group: Sequence[int]) -> Launch:
        """At least `items` work-items: rounded up to whole groups, so the kernel checks its bounds."""
        most = self.kernels.most_items(kernel)
        if prod(group) > most:
            raise ProgramError(f"{kernel.function_name}: groups of {tuple(group)}; the device runs {most} at most")
        size = tuple(-(-max(1, count) // each) * each for count, each in zip(items, group, strict=True))
        return Launch(kernel, tuple(arguments), size, tuple(group), self._step)

    def over(self, kernel: Any, arguments: Sequence[Argument], count: int, group: int = 64) -> Launch:
        """One work-item for each of `count` things, in groups as the kernel takes them."""
        return self.launch(kernel, arguments, (count,), (min(group, self.kernels.most_items(kernel)),))

    def by_channel(self, kernel: Any, arguments: Sequence[Argument], channels: int, rows: int) -> Launch:
        """One work-item for each channel of each row; neighbours take neighbouring channels."""
        most = min(WORK_GROUP_ITEMS[self.limits.kind], self.kernels.most_items(kernel))
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


def typed_pointer(place: Pointer | None, fields: Mapping[str, Field]) -> TypedPointer:
    """A tensor, as its source, its sink or its step says that it is stored."""
    return TypedPointer(place, FLOAT // 2 if fields.get("dtype") else FLOAT)
