"""Makes the OpenCL driver fail, and runs the agent with such a driver:

    python -m tests.phone_agent.backends.opencl.faults KERNELS ARGUMENTS

runs `python -m phone_agent ARGUMENTS` with a device that is lost after so many kernels.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from phone_agent.backends.opencl.device import load_pyopencl

OUT_OF_RESOURCES = -5  # what Adreno drivers report after a GPU fault
CALLS = ("enqueue_nd_range_kernel", "enqueue_map_buffer", "enqueue_copy")


def opencl_error(routine: str, code: int = OUT_OF_RESOURCES) -> Exception:
    cl = load_pyopencl()
    error: Exception = cl.RuntimeError(cl._cl._ErrorRecord("", code, routine))
    return error


def fail_after(calls: int, original: Callable[..., Any], *, times: int = 1 << 30) -> Callable[..., Any]:
    """A function that fails `times` times after so many calls."""
    numbers = count()

    def called(*arguments: Any, **options: Any) -> Any:
        if calls <= next(numbers) < calls + times:
            raise opencl_error(getattr(original, "__name__", "call"))
        return original(*arguments, **options)

    return called


def lose_device(monkeypatch: pytest.MonkeyPatch, kernels: int) -> None:
    """After so many kernels, every call fails."""
    cl = load_pyopencl()
    enqueue, lost = cl.enqueue_nd_range_kernel, [False]
    numbers = count()

    def start_kernel(*arguments: Any, **options: Any) -> Any:
        lost[0] = lost[0] or next(numbers) >= kernels
        return guarded(enqueue)(*arguments, **options)

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            if lost[0]:
                raise opencl_error("clEnqueueNDRangeKernel" if original is enqueue else "another call")
            return original(*arguments, **options)

        return called

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", start_kernel)
    for owner, name in (
        (cl, "enqueue_map_buffer"),
        (cl, "enqueue_copy"),
        (cl.CommandQueue, "finish"),
        (cl.CommandQueue, "flush"),
        (cl.Event, "wait"),
        (cl.MemoryMap, "release"),
    ):
        monkeypatch.setattr(owner, name, guarded(getattr(owner, name)))


if __name__ == "__main__":
    kernels = int(sys.argv.pop(1))
    lose_device(pytest.MonkeyPatch(), kernels)
    runpy.run_module("phone_agent", run_name="__main__", alter_sys=True)
