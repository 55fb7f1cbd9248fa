"""Run cases on this machine, with every block of memory between guard pages."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from phone_agent.core import ops
from phone_agent.core.library import isa_index, library
from tests.phone_agent.core.guarded import Guard, GuardedBytes
from tests.phone_agent.core.memory import Array, Case, Memory

GARBAGE = 0xFF  # NaN as float and as double
MOST_ALIGNED = 64  # alignment of the workspace; other blocks are aligned to their element size


def run(case: Case, isa: str, threads: int, guard: Guard) -> dict[int, Array]:
    """The contents of each block after the run, by the block's id."""
    core = library()
    with ExitStack() as stack:
        placed = {id(memory): stack.enter_context(_placed(memory, threads, guard)) for memory in case.op.reachable()}
        for memory in case.op.reachable():
            _point(memory, placed)
        op = placed[id(case.op)].address
        isa_number = isa_index(core, isa)
        needed = core.core_workspace(isa_number, threads, case.kind, op)
        workspace = stack.enter_context(GuardedBytes(needed, guard, MOST_ALIGNED))
        workspace.bytes.fill(GARBAGE)
        with _pool(core, isa_number, threads, workspace.address) as pool:
            steps = (ops.Step * 1)(ops.Step(case.kind, 0, op))
            core.core_pool_run(pool, ctypes.addressof(steps), 1, None)
        return {id(memory): placed[id(memory)].view(memory.data.dtype).copy() for memory in case.op.reachable()}


def _placed(memory: Memory, threads: int, guard: Guard) -> GuardedBytes:
    content = memory.content(threads)
    made = GuardedBytes(content.nbytes, guard)
    made.bytes[:] = content.view(np.uint8)
    return made


def _point(memory: Memory, placed: dict[int, GuardedBytes]) -> None:
    for offset, target in memory.pointers:
        placed[id(memory)].bytes[offset : offset + 8] = np.array([placed[id(target)].address]).view(np.uint8)


@contextmanager
def _pool(core: ctypes.CDLL, isa: int, threads: int, workspace: int) -> Iterator[int]:
    """A thread pool whose workspace has guard pages, unlike that of phone_agent.core.thread_pool.ThreadPool."""
    with GuardedBytes(ops.THREAD_POOL_BYTES, alignment=64) as memory:
        core.core_pool_init(memory.address, isa, threads, workspace)
        workers = [
            threading.Thread(target=core.core_pool_work, args=(memory.address, index)) for index in range(1, threads)
        ]
        for worker in workers:
            worker.start()
        yield memory.address
        core.core_pool_shutdown(memory.address)
        for worker in workers:
            worker.join()
