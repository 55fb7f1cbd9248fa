"""A device that fails or is lost: one error with a code, all memory back at the host, and a watchdog that survives."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.opencl.backend import OpenClBackend, OpenClExecutable
from phone_agent.backends.opencl.device import DeviceError, load_pyopencl
from phone_agent.backends.opencl.device_memory import block_of
from phone_agent.backends.opencl.watchdog import EXIT_CODE, Watchdog
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import DeviceConfig
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from tests.phone_agent.backends.opencl.faults import fail_after, lose_device, opencl_error
from tests.phone_agent.phones import Phone, events, forget, make_phones, resumed, run_spec, train

LENET = models.build("lenet", 10, (28, 28, 1))
BATCH = 4
OPTIONS = Options(bucket_bytes=20_000)
Step = Callable[[], float]


@pytest.fixture
def trained() -> tuple[OpenClExecutable, State, Step, float]:
    """An executable, its state, a training step, and the loss of that step."""
    backend = OpenClBackend()
    state = State(LENET, 1)
    state.move(backend.array)
    executable = backend.compile(LENET, state, BATCH, OPTIONS)
    rng = np.random.default_rng(3)
    images = backend.array(BATCH * 784).reshape(BATCH, *LENET.shape)
    images[...] = rng.normal(0, 1, images.shape)
    labels = rng.integers(0, 10, BATCH)

    def step() -> float:
        return executable.loss_and_gradients(images, labels, 1.0, ready=lambda *_: None, need=lambda *_: None)

    return executable, state, step, step()


def assert_mapped(state: State) -> None:
    for array in (state.values, state.gradients):
        block = block_of(array)
        assert block is not None
        assert all(block.is_mapped(each) for each in block._ranges)


@pytest.mark.parametrize("kernels", [0, 1, 9])
def test_a_kernel_that_does_not_start(
    trained: tuple[OpenClExecutable, State, Step, float], monkeypatch: pytest.MonkeyPatch, kernels: int
) -> None:
    _, state, step, loss = trained
    cl = load_pyopencl()
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", fail_after(kernels, cl.enqueue_nd_range_kernel, times=1))
        with pytest.raises(DeviceError, match=r"OpenCL device .* failed: .*OUT_OF_RESOURCES.*--backend cpu") as caught:
            step()
    assert caught.value.code is ErrorCode.OPENCL_FAILED
    assert_mapped(state)
    assert step() == loss


@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize(("owner", "name"), [("Event", "wait"), ("CommandQueue", "flush"), ("MemoryMap", "release")])
def test_a_call_that_fails_once(
    trained: tuple[OpenClExecutable, State, Step, float],
    monkeypatch: pytest.MonkeyPatch,
    owner: str,
    name: str,
    calls: int,
) -> None:
    """A kernel that fails raises when it is waited for."""
    _, state, step, _ = trained
    kind = getattr(load_pyopencl(), owner)
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, fail_after(calls, getattr(kind, name), times=1))
        with pytest.raises(DeviceError):
            step()
    assert_mapped(state)


def test_a_lost_device_is_reported_with_its_first_error(
    trained: tuple[OpenClExecutable, State, Step, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, step, _ = trained
    lose_device(monkeypatch, kernels=5)
    with pytest.raises(DeviceError, match="failed: OUT_OF_RESOURCES - clEnqueueNDRangeKernel"):
        step()
    with pytest.raises(DeviceError):
        step()


def test_every_entry_point_reports_a_lost_device(
    trained: tuple[OpenClExecutable, State, Step, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    executable, _, _, _ = trained
    images, labels = np.zeros((BATCH, *LENET.shape), np.float32), np.zeros(BATCH, np.int64)
    lose_device(monkeypatch, kernels=0)
    calls: list[Callable[[], Any]] = [
        lambda: executable.loss_and_gradients(images, labels, 1.0),
        lambda: executable.forward(images),
        lambda: executable.profile(images, labels),
        lambda: OpenClBackend().array(100),
        lambda: OpenClBackend().compile(LENET, State(LENET, 1), BATCH, OPTIONS),
        executable.close,
    ]
    for call in calls:
        with pytest.raises(DeviceError):
            call()


def test_hybrid_reports_a_lost_device(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = get_backend("hybrid").compile(LENET, State(LENET, 1), BATCH, replace(OPTIONS, gpu_share=0.5))
    images, labels = np.zeros((BATCH, *LENET.shape), np.float32), np.zeros(BATCH, np.int64)
    lose_device(monkeypatch, kernels=5)
    for ready in (None, lambda *_: None):
        with pytest.raises(DeviceError):
            executable.loss_and_gradients(images, labels, 1.0, ready=ready)


# ------------------------------------------------------------------------------------------------------- watchdog


class Lost:
    """An event of a lost device: its status is unknown, and waiting for it hangs until `give_up`."""

    def __init__(self) -> None:
        self.give_up = threading.Event()

    @property
    def command_execution_status(self) -> int:
        raise opencl_error("clGetEventInfo")

    def wait(self) -> None:
        self.give_up.wait()


def test_the_watchdog_survives_a_status_that_cannot_be_read() -> None:
    reported: list[str] = []
    event, hung = Lost(), threading.Event()

    def on_hang(message: str) -> None:
        reported.append(message)
        hung.set()

    watchdog = Watchdog("it", limit=0.2, on_hang=on_hang)
    waiting = threading.Thread(target=watchdog.wait, args=([("conv1", event)],), daemon=True)
    waiting.start()
    assert hung.wait(60)
    event.give_up.set()
    waiting.join()
    assert "OpenCL device it hangs: 'conv1' did not finish" in reported[0]


def in_subprocess(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)


SPINNING = """
import ctypes
import numpy as np
from phone_agent.backends.opencl import backend, watchdog
from phone_agent.backends.opencl.device import find_device, load_pyopencl

cl, device = load_pyopencl(), find_device()
watchdog.call_before_exit(lambda message: print("before exit", flush=True))
shared = backend.SharedMemory(device, watchdog.Watchdog("the device", limit=1.0, gil_limit=3.0))
block = backend.SharedBlock(shared, 64)
block.unmap_all()
shared.finish()

def spin(queue):
    source = "kernel void spin(global volatile int *x) { while (x[0] == 0) x[1]++; }"
    kernel = cl.Kernel(cl.Program(device.context, source).build(), "spin")
    buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 8)
    cl.enqueue_fill_buffer(queue, buffer, np.int32(0), 0, 8).wait()
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
"""


@pytest.mark.parametrize(("hang", "name"), [("spin(shared.transfers); block.map_all()", "map"),
                                            ("spin(shared.queue); shared.finish()", "finish")])  # fmt: skip
def test_a_blocking_call_that_hangs_ends_the_process(hang: str, name: str) -> None:
    """Behind a real kernel that never ends."""
    done = in_subprocess(f"{SPINNING}\n{hang}")
    assert done.returncode == EXIT_CODE, done.stderr
    assert f"OpenCL device the device hangs: '{name}' did not finish within 1 s; giving up" in done.stderr
    assert done.stdout == "before exit\n"


def test_a_call_that_hangs_with_the_gil_ends_the_process() -> None:
    """pyopencl keeps the GIL while it starts a kernel, so no Python thread can notice."""
    script = f"{SPINNING}\nwith shared.watchdog.call('start of conv1'):\n    ctypes.PyDLL(None).sleep(100)"
    done = in_subprocess(script)
    assert done.returncode == 1
    assert "Timeout (0:00:03)!" in done.stderr
    assert 'File "<string>"' in done.stderr  # where


# ------------------------------------------------------------------------------------------------- with a real rank


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[Phone]:
    phones = make_phones(tmp_path, 1)
    yield phones[0]
    forget(phones)


@pytest.mark.parametrize("backend", ["opencl", pytest.param("hybrid", marks=pytest.mark.slow)])
def test_a_phone_that_loses_its_gpu_continues_on_its_cpu(phone: Phone, backend: str) -> None:
    spec = run_spec(
        (6,), steps=12, backend=backend, load_balancing="off", devices={"p1-01": DeviceConfig(gpu_fraction=0.5)}
    )
    agent = (sys.executable, "-m", "tests.phone_agent.backends.opencl.faults", "300")
    assert train([phone], spec, agent).returncode != 0
    error = next(event for event in events(phone, spec) if event["event"] == "error")
    assert (error["code"], error["fault"]) == ("opencl_failed", "phone")
    assert "OUT_OF_RESOURCES" in error["message"]
    done = max(event["step"] for event in events(phone, spec) if event["event"] == "step")
    assert 0 < done < 12
    again = resumed([phone], spec, 1)
    assert train([phone], again).returncode == 0
    after = events(phone, again)
    assert (after[0]["backend"], after[0]["resumed_from"]) == ("cpu", "memory")
    assert after[0]["resumed"] >= done
    assert any("computes on the CPU: OpenCL device" in event.get("message", "") for event in after)
