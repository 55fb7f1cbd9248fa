"""Memory that host and device both see, and the device's own.

A block of shared memory belongs to one of both at a time, part by part: `give` hands a part to the device, `take`
brings it back. Where the device computes in the host's memory neither moves a byte; `copied` counts those that move.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.backends.opencl.device import Device, load_pyopencl
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.plan.ops import Buffer, MemorySpace, Pointer

Array = NDArray[Any]
ByteRange = tuple[int, int]  # bytes


class MemoryLimitError(AgentError):
    """More than the device has, or gives in one piece."""

    code = ErrorCode.OUT_OF_MEMORY


class MappingMovedError(AgentError):
    """The driver shows its memory at another place each time, so no array can stay over it."""

    code = ErrorCode.OPENCL_FAILED


class SharedBlock:
    """One piece of shared memory, zeroed and the host's at first."""

    def __init__(self, shared: SharedMemory, count: int) -> None:
        self._shared, self.bytes = shared, count
        self.buffer = shared.device_buffer(count, in_host_memory=True)
        self._parts: list[ByteRange] = [(0, count)]
        self._held: dict[ByteRange, Any] = {}
        self.address = 0
        self.take_all()
        ctypes.memset(self.address, 0, count)

    def array(self, dtype: DTypeLike = np.uint8) -> Array:
        """Over all of it; keeps it alive."""
        visible: Any = (ctypes.c_uint8 * self.bytes).from_address(self.address)
        visible.block = self
        return np.frombuffer(visible, dtype, self.bytes // np.dtype(dtype).itemsize)

    def split(self, parts: Sequence[ByteRange]) -> None:
        """From now on these go to and fro, each on its own. All of it is the host's now."""
        if set(parts) != set(self._parts):
            self.give_all()
            self._parts = list(parts)
            self.take_all()

    def give(self, part: ByteRange) -> None:
        if part in self._held:
            self._held.pop(part).release(self._shared.queue)
            self._shared.moved(part)

    def take(self, part: ByteRange) -> None:
        """The device has finished with it: whoever calls has waited for that."""
        start, end = part
        if part in self._held or start == end:
            return
        cl = load_pyopencl()
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        queue = self._shared.transfers
        shown, _ = cl.enqueue_map_buffer(queue, self.buffer, flags, start, (end - start,), np.uint8)
        self.address = self.address or shown.ctypes.data
        if shown.ctypes.data != self.address + start:
            raise MappingMovedError(f"{self._shared.device.identity.device} does not keep mapped memory in its place")
        self._held[part] = shown.base
        self._shared.moved(part)

    def holds(self, part: ByteRange) -> bool:
        """Whether it is the host's."""
        return part in self._held

    def give_all(self) -> None:
        for part in self._parts:
            self.give(part)

    def take_all(self) -> None:
        for part in self._parts:
            self.take(part)


class SharedMemory:
    """Of one device. `queue` computes, in order; `transfers` brings back what is finished while that goes on."""

    def __init__(self, device: Device) -> None:
        cl = load_pyopencl()
        self.device = device
        self.queue, self.transfers = cl.CommandQueue(device.context), cl.CommandQueue(device.context)
        self.copied = 0

    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        """Zeroed, and read and written by the device where it is."""
        size = count * np.dtype(dtype).itemsize
        return SharedBlock(self, max(size, 1)).array(dtype)[:count]

    def moved(self, part: ByteRange) -> None:
        if not self.device.limits.unified:
            self.copied += part[1] - part[0]

    def device_buffer(self, count: int, *, in_host_memory: bool = False) -> Any:
        cl, limits = load_pyopencl(), self.device.limits
        if count > limits.allocation_bytes:
            most, name = limits.allocation_bytes, self.device.identity.device
            raise MemoryLimitError(f"{count} bytes in one piece; {name} gives {most} at most: take a smaller batch")
        flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.ALLOC_HOST_PTR if in_host_memory else 0)
        try:
            return cl.Buffer(self.device.context, flags, count)
        except cl.Error as error:
            name = self.device.identity.device
            raise MemoryLimitError(f"{count} bytes more than {name} has room for: {error}") from None


def block_of(array: Array) -> SharedBlock | None:
    """The block this array lies in, if it lies in one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return getattr(base, "block", None)


class DeviceArray(Protocol):
    """An array of the host's that the device works on, in parts counted in its items. A part that is where it is to go
    stays there."""

    @property
    def buffer(self) -> Any: ...

    def give(self, start: int, end: int) -> None: ...

    def take(self, start: int, end: int) -> None: ...


@dataclass
class MappedArray:
    """An array in shared memory, which is cut into these parts."""

    block: SharedBlock
    item: int

    @property
    def buffer(self) -> Any:
        return self.block.buffer

    def give(self, start: int, end: int) -> None:
        self.block.give((start * self.item, end * self.item))

    def take(self, start: int, end: int) -> None:
        self.block.take((start * self.item, end * self.item))

    def holds(self, start: int, end: int) -> bool:
        return self.block.holds((start * self.item, end * self.item))


@dataclass
class CopiedArray:
    """An array elsewhere, and the block that stands for it: both ways are copies."""

    shared: SharedMemory
    array: Array
    inside: MappedArray

    @property
    def buffer(self) -> Any:
        return self.inside.buffer

    def give(self, start: int, end: int) -> None:
        if self.inside.holds(start, end):
            self._seen()[start:end] = self.array[start:end]
            self._count(start, end)
            self.inside.give(start, end)

    def take(self, start: int, end: int) -> None:
        if not self.inside.holds(start, end):
            self.inside.take(start, end)
            self.array[start:end] = self._seen()[start:end]
            self._count(start, end)

    def _seen(self) -> Array:
        return self.inside.block.array(self.array.dtype)

    def _count(self, start: int, end: int) -> None:
        self.shared.copied += (end - start) * self.array.itemsize


def make_device_array(shared: SharedMemory, array: Array, parts: Sequence[tuple[int, int]]) -> DeviceArray:
    """An array for the device to work on: where it is if it can be, else in a copy."""
    block, item = block_of(array), array.itemsize
    here = block is not None and block.address == array.ctypes.data and array.nbytes <= block.bytes
    own = block if block is not None and here else SharedBlock(shared, max(array.nbytes, 1))
    own.split([(start * item, end * item) for start, end in parts])
    inside = MappedArray(own, item)
    return inside if here else CopiedArray(shared, array, inside)


class Arena:
    """The device's own memory for what a plan places, in pieces of `piece` bytes but for the last."""

    def __init__(self, shared: SharedMemory, total: int, piece: int) -> None:
        self.bytes, self._piece = total, piece
        starts = range(0, max(total, 1), piece)
        self._buffers = [shared.device_buffer(min(piece, max(total, 1) - start)) for start in starts]

    def of(self, offset: int) -> tuple[Any, int]:
        number, inside = divmod(offset, self._piece)
        return self._buffers[number], inside


@dataclass(frozen=True)
class BufferBindings:
    """Where a plan's buffers lie."""

    homes: Mapping[MemorySpace, Any]
    arena: Arena
    offsets: Mapping[Buffer, int]
    scratch: Any

    def of(self, place: Pointer) -> tuple[Any, int]:
        if place.buffer.space != MemorySpace.ARENA:
            return self.homes[place.buffer.space], place.offset
        buffer, start = self.arena.of(self.offsets[place.buffer])
        return buffer, start + place.offset
