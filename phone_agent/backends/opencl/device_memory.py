"""Memory shared between host and device, and memory of the device alone.

Each range of a shared block belongs to the host or to the device: `map` gives it to the host, `unmap` to the device. If
the device computes in host memory, neither copies anything; `copied` counts the bytes that are copied.
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
    """The allocation is larger than the memory of the device, or than it allocates at once."""

    code = ErrorCode.OUT_OF_MEMORY


class MappingMovedError(AgentError):
    """The driver maps memory to another address each time, so no array can refer to it permanently."""

    code = ErrorCode.OPENCL_FAILED


class SharedBlock:
    """A block of shared memory, zeroed and mapped to the host at first."""

    def __init__(self, shared: SharedMemory, count: int) -> None:
        self._shared, self.bytes = shared, count
        self.buffer = shared.device_buffer(count, in_host_memory=True)
        self._ranges: list[ByteRange] = [(0, count)]
        self._mappings: dict[ByteRange, Any] = {}
        self.address = 0
        self.map_all()
        ctypes.memset(self.address, 0, count)

    def array(self, dtype: DTypeLike = np.uint8) -> Array:
        """An array over the whole block, which keeps the block alive."""
        memory: Any = (ctypes.c_uint8 * self.bytes).from_address(self.address)
        memory.block = self
        return np.frombuffer(memory, dtype, self.bytes // np.dtype(dtype).itemsize)

    def split(self, ranges: Sequence[ByteRange]) -> None:
        """From now on, map and unmap these ranges separately. All of them are mapped afterwards."""
        if set(ranges) != set(self._ranges):
            self.unmap_all()
            self._ranges = list(ranges)
            self.map_all()

    def unmap(self, byte_range: ByteRange) -> None:
        if byte_range in self._mappings:
            self._mappings.pop(byte_range).release(self._shared.queue)
            self._shared.count_copied(byte_range)

    def map(self, byte_range: ByteRange) -> None:
        """The caller must have waited for the device to finish with it."""
        start, end = byte_range
        if byte_range in self._mappings or start == end:
            return
        cl = load_pyopencl()
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        queue = self._shared.transfers
        mapped, _ = cl.enqueue_map_buffer(queue, self.buffer, flags, start, (end - start,), np.uint8)
        self.address = self.address or mapped.ctypes.data
        if mapped.ctypes.data != self.address + start:
            raise MappingMovedError(
                f"{self._shared.device.identity.device} does not keep mapped memory at a fixed address"
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

    def __init__(self, device: Device) -> None:
        cl = load_pyopencl()
        self.device = device
        self.queue, self.transfers = cl.CommandQueue(device.context), cl.CommandQueue(device.context)
        self.copied = 0

    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        """A zeroed array that the device reads and writes in place."""
        size = count * np.dtype(dtype).itemsize
        return SharedBlock(self, max(size, 1)).array(dtype)[:count]

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
        except cl.Error as error:
            name = self.device.identity.device
            raise MemoryLimitError(f"cannot allocate {count} bytes on {name}: {error}") from None


def block_of(array: Array) -> SharedBlock | None:
    """The shared block that holds this array, if any."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return getattr(base, "block", None)


class DeviceArray(Protocol):
    """A host array that the device works on, in ranges of elements. Mapping a mapped range does nothing."""

    @property
    def buffer(self) -> Any: ...

    def unmap(self, start: int, end: int) -> None: ...

    def map(self, start: int, end: int) -> None: ...


@dataclass
class MappedArray:
    """An array in shared memory: no copies."""

    block: SharedBlock
    item_bytes: int

    @property
    def buffer(self) -> Any:
        return self.block.buffer

    def unmap(self, start: int, end: int) -> None:
        self.block.unmap((start * self.item_bytes, end * self.item_bytes))

    def map(self, start: int, end: int) -> None:
        self.block.map((start * self.item_bytes, end * self.item_bytes))

    def is_mapped(self, start: int, end: int) -> bool:
        return self.block.is_mapped((start * self.item_bytes, end * self.item_bytes))


@dataclass
class CopiedArray:
    """An array in other memory, and a shared block that mirrors it: copies in both directions."""

    shared: SharedMemory
    array: Array
    mirror: MappedArray

    @property
    def buffer(self) -> Any:
        return self.mirror.buffer

    def unmap(self, start: int, end: int) -> None:
        if self.mirror.is_mapped(start, end):
            self._mirror_array()[start:end] = self.array[start:end]
            self._count(start, end)
            self.mirror.unmap(start, end)

    def map(self, start: int, end: int) -> None:
        if not self.mirror.is_mapped(start, end):
            self.mirror.map(start, end)
            self.array[start:end] = self._mirror_array()[start:end]
            self._count(start, end)

    def _mirror_array(self) -> Array:
        return self.mirror.block.array(self.array.dtype)

    def _count(self, start: int, end: int) -> None:
        self.shared.copied += (end - start) * self.array.itemsize


def make_device_array(shared: SharedMemory, array: Array, ranges: Sequence[tuple[int, int]]) -> DeviceArray:
    """Make an array usable by the device: in place if it is in shared memory, otherwise through a copy."""
    block, item_bytes = block_of(array), array.itemsize
    in_place = block is not None and block.address == array.ctypes.data and array.nbytes <= block.bytes
    own = block if block is not None and in_place else SharedBlock(shared, max(array.nbytes, 1))
    own.split([(start * item_bytes, end * item_bytes) for start, end in ranges])
    mapped = MappedArray(own, item_bytes)
    return mapped if in_place else CopiedArray(shared, array, mapped)


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

    bases: Mapping[MemorySpace, Any]
    arena: Arena
    offsets: Mapping[Buffer, int]
    scratch: Any

    def resolve(self, pointer: Pointer) -> tuple[Any, int]:
        if pointer.buffer.space != MemorySpace.ARENA:
            return self.bases[pointer.buffer.space], pointer.offset
        buffer, start = self.arena.resolve(self.offsets[pointer.buffer])
        return buffer, start + pointer.offset
