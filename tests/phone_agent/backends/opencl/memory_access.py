"""Records what is done with OpenCL memory, and finds accesses that OpenCL leaves undefined though most drivers allow
them: PoCL does not notice if a kernel uses memory that is mapped to the host.

OpenCL 1.2, 5.4.3: an object mapped for writing must be unmapped before a kernel uses it, its parent or its sub-buffers,
whichever part of it is mapped. Commands of different queues have no order unless the host waits in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import pytest

from phone_agent.backends.opencl.device import load_pyopencl


@dataclass(frozen=True)
class Region:
    """The bytes of a memory object, as a part of the object that it was created from."""

    root: int
    start: int
    end: int

    @classmethod
    def of(cls, memory: Any) -> Region:
        info = load_pyopencl().mem_info
        parent = memory.get_info(info.ASSOCIATED_MEMOBJECT)
        start = memory.get_info(info.OFFSET) if parent is not None else 0
        return cls((parent or memory).int_ptr, start, start + memory.size)

    def overlaps(self, other: Region) -> bool:
        return self.root == other.root and self.start < other.end and other.start < self.end


@dataclass(eq=False)
class Command:
    """A command of an in-order queue that may not have finished yet."""

    name: str
    queue: int
    regions: frozenset[Region]
    event: Any


@dataclass
class MemoryAccess:
    """`violations`: in words. The counts are there to prove that something was recorded."""

    violations: list[str] = field(default_factory=list)
    kernels: int = 0
    maps: int = 0
    _mapped: dict[int, tuple[Any, Region]] = field(default_factory=dict)  # by mapping, which is kept alive
    _pending: list[Command] = field(default_factory=list)
    _arguments: dict[Any, dict[int, Any]] = field(default_factory=dict)
    _lock: Any = field(default_factory=RLock)

    def set_argument(self, kernel: Any, index: int, value: Any) -> None:
        with self._lock:
            self._arguments.setdefault(kernel, {})[index] = value

    def start_kernel(self, queue: Any, kernel: Any, event: Any) -> None:
        with self._lock:
            self.kernels += 1
            cl, name = load_pyopencl(), kernel.function_name
            used = frozenset(
                Region.of(value) for value in self._arguments.get(kernel, {}).values() if isinstance(value, cl.Buffer)
            )
            for region in used:
                if any(region.overlaps(mapped) for _, mapped in self._mapped.values()):
                    self.violations.append(f"{name} uses {region}, of which a part is mapped")
                if any(region.overlaps(other) for other in used - {region}):
                    self.violations.append(f"{name} uses {region} and another object with the same memory")
            self._check_order(name, queue, used)
            self._pending.append(Command(name, queue.int_ptr, used, event))

    def map(self, queue: Any, memory: Any, mapping: Any) -> None:
        """To be called after a blocking map, for the state before it."""
        with self._lock:
            self.maps += 1
            region = Region.of(memory)
            self._check_order("map", queue, [region])
            self._mapped[id(mapping)] = mapping, region
            self.finish(queue)

    def unmap(self, queue: Any, mapping: Any, event: Any) -> None:
        with self._lock:
            _, region = self._mapped.pop(id(mapping), (None, None))
            if region is not None:  # mapped since the recording began
                self._pending.append(Command("unmap", queue.int_ptr, frozenset([region]), event))

    def finish(self, queue: Any) -> None:
        with self._lock:
            self._pending = [command for command in self._pending if command.queue != queue.int_ptr]

    def wait(self, event: Any) -> None:
        """Commands before this one have finished as well."""
        with self._lock:
            found = next((each for each in self._pending if each.event.int_ptr == event.int_ptr), None)
            if found is not None:
                position = self._pending.index(found)
                before = {id(each) for each in self._pending[: position + 1] if each.queue == found.queue}
                self._pending = [each for each in self._pending if id(each) not in before]

    def _check_order(self, name: str, queue: Any, regions: Iterable[Region]) -> None:
        for region in regions:
            for command in self._pending:
                if command.queue != queue.int_ptr and any(region.overlaps(other) for other in command.regions):
                    self.violations.append(f"{name} of {region} while {command.name} runs in another queue")


def record_memory_access(monkeypatch: pytest.MonkeyPatch) -> MemoryAccess:
    """Record until the end of the test. Only memory that is mapped from now on counts."""
    cl, access = load_pyopencl(), MemoryAccess()
    enqueue, map_buffer, copy = cl.enqueue_nd_range_kernel, cl.enqueue_map_buffer, cl.enqueue_copy

    def start_kernel(queue: Any, kernel: Any, *arguments: Any, **options: Any) -> Any:
        event = enqueue(queue, kernel, *arguments, **options)
        access.start_kernel(queue, kernel, event)
        return event

    def map_blocking(queue: Any, memory: Any, *arguments: Any, **options: Any) -> Any:
        assert options.get("is_blocking", True)
        mapped, event = map_buffer(queue, memory, *arguments, **options)
        access.map(queue, memory, mapped.base)
        return mapped, event

    def copy_blocking(queue: Any, *arguments: Any, **options: Any) -> Any:
        event = copy(queue, *arguments, **options)
        access.finish(queue)
        return event

    def wrap(kind: Any, name: str, after: Callable[..., None]) -> None:
        original = getattr(kind, name)

        def called(self: Any, *arguments: Any, **options: Any) -> Any:
            result = original(self, *arguments, **options)
            after(self, *arguments, result)
            return result

        monkeypatch.setattr(kind, name, called)

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", start_kernel)
    monkeypatch.setattr(cl, "enqueue_map_buffer", map_blocking)
    monkeypatch.setattr(cl, "enqueue_copy", copy_blocking)
    wrap(cl.Kernel, "set_arg", lambda kernel, index, value, _: access.set_argument(kernel, index, value))
    wrap(cl.MemoryMap, "release", lambda mapping, queue, event: access.unmap(queue, mapping, event))
    wrap(cl.CommandQueue, "finish", lambda queue, _: access.finish(queue))
    wrap(cl.Event, "wait", lambda event, _: access.wait(event))
    return access
