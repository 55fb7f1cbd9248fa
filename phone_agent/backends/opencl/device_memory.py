"""Memory shared between host and device, and memory of the device alone.

Each range of a shared block belongs to the host or to the device: `map` gives it to the host, `unmap` to the device. If
the device computes in host memory, neither copies anything; `copied` counts the bytes that are copied. A range is a
memory object of its own, because a kernel may not use one of which any part is mapped.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.backends.opencl.device import Device, load_pyopencl
from phone_agent.backends.opencl.watchdog import Watchdog
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.plan.ops import Buffer, MemorySpace, Pointer

Array = NDArray[Any]
ByteRange = tuple[int, int]  # bytes


class MemoryLimitError(AgentError):
    """The allocation is larger than the memory of the device, or than it allocates at once."""

    code = ErrorCode.OUT_OF_MEMORY


class MappingMovedError(AgentError):
    """The driver maps memory to another address each time, so no array can refer to it permanently."""

    code = ErrorCode.OPENCL_FAILED


class SharedBlock:
    """A block of shared memory, zeroed and mapped to the host at first.

    It can be split into ranges, which are mapped and unmapped separately. Each range is a memory object of its own,
    since it is undefined what happens if a kernel uses a memory object while any part of it is mapped.
    """

    def __init__(self, shared: SharedMemory, count: int) -> None:
        self._shared, self.bytes = shared, count
        self._objects: dict[ByteRange, Any] = {(0, count): shared.device_buffer(count, in_host_memory=True)}
        self._ranges: Sequence[ByteRange] = ((0, count),)
        self._mappings: dict[ByteRange, Any] = {}
        self.address = 0
        self.map_all()
        ctypes.memset(self.address, 0, count)

    @property
    def buffer(self) -> Any:
        """The memory object of the whole block. Not to be used while the block is split."""
        return self.memory_object((0, self.bytes))

    def memory_object(self, byte_range: ByteRange) -> Any:
        """A sub-buffer, unless it is the whole block."""
        if byte_range not in self._objects:
            start, end = byte_range
            self._objects[byte_range] = self._objects[0, self.bytes].get_sub_region(start, end - start)
        return self._objects[byte_range]

    def resolve(self, offset: int) -> tuple[Any, int]:
        return self.buffer, offset

    def array(self, dtype: DTypeLike = np.uint8) -> Array:
        """An array over the whole block, which keeps the block alive."""
        memory: Any = (ctypes.c_uint8 * self.bytes).from_address(self.address)
        memory.block = self
        return np.frombuffer(memory, dtype, self.bytes // np.dtype(dtype).itemsize)

    def split(self, ranges: Sequence[ByteRange]) -> None:
        """From now on, map and unmap these ranges separately. All of them are mapped afterwards."""
        if ranges != self._ranges:
            self.unmap_all()
            self._shared.finish()  # maps are enqueued elsewhere, and must not overtake
            self._ranges = ranges
            self.map_all()

    def unmap(self, byte_range: ByteRange) -> None:
        if byte_range in self._mappings:
            with self._shared.watchdog.call("unmap"):
                self._mappings.pop(byte_range).release(self._shared.queue)
            self._shared.count_copied(byte_range)

    def map(self, byte_range: ByteRange) -> None:
        """The caller must have waited for the device to finish with it."""
        start, end = byte_range
        if byte_range in self._mappings:
            return
        cl = load_pyopencl()
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        memory, queue = self.memory_object(byte_range), self._shared.transfers
        with self._shared.watchdog.call("map"):
            mapped, _ = cl.enqueue_map_buffer(queue, memory, flags, 0, (end - start,), np.uint8)
        self.address = self.address or mapped.ctypes.data
        if mapped.ctypes.data != self.address + start:
            raise MappingMovedError(
                f"{self._shared.device.identity.device} does not keep mapped memory at a fixed address: "
                "use --backend cpu"
            )
        self._mappings[byte_range] = mapped.base
        self._shared.count_copied(byte_range)

    def is_mapped(self, byte_range: ByteRange) -> bool:
        """Whether the range is mapped to the host."""
        return byte_range in self._mappings

    def unmap_all(self) -> None:
        for byte_range in self._ranges:
            self.unmap(byte_range)

    def map_all(self) -> None:
        for byte_range in self._ranges:
            self.map(byte_range)


class SharedMemory:
    """Shared memory of one device. `queue` runs kernels in order; `transfers` maps finished ranges meanwhile."""

    def __init__(self, device: Device, watchdog: Watchdog) -> None:
        cl = load_pyopencl()
        self.device, self.watchdog = device, watchdog
        self.queue, self.transfers = cl.CommandQueue(device.context), cl.CommandQueue(device.context)
        self.copied = 0

    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        """A zeroed array that the device reads and writes in place."""
        size = count * np.dtype(dtype).itemsize
        return SharedBlock(self, max(size, 1)).array(dtype)[:count]

    def finish(self) -> None:
        """Wait until `queue` is empty."""
        with self.watchdog.call("finish"):
            self.queue.finish()

    def count_copied(self, byte_range: ByteRange) -> None:
        if not self.device.limits.unified:
            self.copied += byte_range[1] - byte_range[0]

    def device_buffer(self, count: int, *, in_host_memory: bool = False) -> Any:
        cl, limits = load_pyopencl(), self.device.limits
        if count > limits.allocation_bytes:
            most, name = limits.allocation_bytes, self.device.identity.device
            raise MemoryLimitError(
                f"cannot allocate {count} bytes; {name} allocates at most {most} at once: reduce the batch"
            )
        flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.ALLOC_HOST_PTR if in_host_memory else 0)
        try:
            return cl.Buffer(self.device.context, flags, count)
        except cl.MemoryError as error:
            name = self.device.identity.device
            raise MemoryLimitError(f"cannot allocate {count} bytes on {name}: {error}: reduce the batch") from None


def block_of(array: Array) -> SharedBlock | None:
    """The shared block that holds this array, if any."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return getattr(base, "block", None)


class DeviceMemory(Protocol):
    def resolve(self, offset: int) -> tuple[Any, int]:
        """The memory object at this byte, and the byte offset in it."""
        ...


class DeviceArray(DeviceMemory, Protocol):
    """A host array that the device works on, in ranges of elements. Mapping a mapped range does nothing."""

    def split(self) -> None:
        """Before each use: another array may have split the same block differently."""
        ...

    def unmap(self, start: int, end: int) -> None: ...

    def map(self, start: int, end: int) -> None: ...


@dataclass(frozen=True)
class MappedArray:
    """An array in shared memory: no copies."""

    block: SharedBlock
    item_bytes: int
    ranges: tuple[ByteRange, ...]

    def resolve(self, offset: int) -> tuple[Any, int]:
        found = _range_at(self.ranges, offset)
        return self.block.memory_object(found), offset - found[0]

    def split(self) -> None:
        self.block.split(self.ranges)

    def unmap(self, start: int, end: int) -> None:
        self.block.unmap((start * self.item_bytes, end * self.item_bytes))

    def map(self, start: int, end: int) -> None:
        self.block.map((start * self.item_bytes, end * self.item_bytes))


class CopiedArray:
    """An array in other memory, and a shared block for each of its ranges: copies in both directions."""

    def __init__(self, shared: SharedMemory, array: Array, ranges: tuple[ByteRange, ...]) -> None:
        self._shared, self._array, self._ranges = shared, array, ranges
        self._blocks = {each: SharedBlock(shared, each[1] - each[0]) for each in ranges}

    def resolve(self, offset: int) -> tuple[Any, int]:
        found = _range_at(self._ranges, offset)
        return self._blocks[found].resolve(offset - found[0])

    def split(self) -> None:
        """Nothing to do: the blocks belong to this array alone."""

    def unmap(self, start: int, end: int) -> None:
        block = self._block(start, end)
        if block.is_mapped((0, block.bytes)):
            block.array(self._array.dtype)[:] = self._array[start:end]
            self._shared.copied += block.bytes
            block.unmap_all()

    def map(self, start: int, end: int) -> None:
        block = self._block(start, end)
        if not block.is_mapped((0, block.bytes)):
            block.map_all()
            self._array[start:end] = block.array(self._array.dtype)
            self._shared.copied += block.bytes

    def _block(self, start: int, end: int) -> SharedBlock:
        return self._blocks[start * self._array.itemsize, end * self._array.itemsize]


def _range_at(ranges: Sequence[ByteRange], offset: int) -> ByteRange:
    return ranges[bisect_right(ranges, offset, key=lambda each: each[0]) - 1]


def make_device_array(shared: SharedMemory, array: Array, ranges: Sequence[tuple[int, int]]) -> DeviceArray:
    """Make an array usable by the device: in place if it is in shared memory, otherwise through a copy.

    `ranges`: in elements, ascending. They cover the array.
    """
    in_bytes = tuple((start * array.itemsize, end * array.itemsize) for start, end in ranges if start < end)
    block = block_of(array)
    if block is not None and _is_usable_in_place(shared, block, array, in_bytes):
        return MappedArray(block, array.itemsize, in_bytes)
    return CopiedArray(shared, array, in_bytes)


def _is_usable_in_place(shared: SharedMemory, block: SharedBlock, array: Array, ranges: Sequence[ByteRange]) -> bool:
    """Sub-buffers must be aligned as the device requires."""
    is_aligned = all(start % shared.device.sub_buffer_alignment == 0 for start, _ in ranges)
    return is_aligned and block.address == array.ctypes.data and array.nbytes <= block.bytes


class Arena:
    """Device memory for the arena of a plan, in segments of `segment_bytes`; the last one may be shorter."""

    def __init__(self, shared: SharedMemory, total: int, segment_bytes: int) -> None:
        self.bytes, self._segment_bytes = total, segment_bytes
        starts = range(0, max(total, 1), segment_bytes)
        self._buffers = [shared.device_buffer(min(segment_bytes, max(total, 1) - start)) for start in starts]

    def resolve(self, offset: int) -> tuple[Any, int]:
        segment, inside = divmod(offset, self._segment_bytes)
        return self._buffers[segment], inside


@dataclass(frozen=True)
class BufferBindings:
    """The device memory of the buffers of a plan."""

    bases: Mapping[MemorySpace, DeviceMemory]
    arena: Arena
    offsets: Mapping[Buffer, int]
    scratch: Any

    def resolve(self, pointer: Pointer) -> tuple[Any, int]:
        if pointer.buffer.space != MemorySpace.ARENA:
            return self.bases[pointer.buffer.space].resolve(pointer.offset)
        buffer, start = self.arena.resolve(self.offsets[pointer.buffer])
        return buffer, start + pointer.offset
