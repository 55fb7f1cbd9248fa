"""The OpenCL backend: zero-copy memory, buckets, and devices that hang or are missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.opencl import device, program
from phone_agent.backends.opencl.backend import OpenClBackend, OpenClExecutable
from phone_agent.backends.opencl.device import NoDeviceError, find_device, load_pyopencl
from phone_agent.backends.opencl.device_memory import MemoryLimitError, block_of
from phone_agent.backends.opencl.memory_estimate import options_for_backend
from phone_agent.backends.opencl.program import ProgramCache, ProgramError
from phone_agent.backends.opencl.watchdog import EXIT_CODE, Watchdog
from phone_agent.bench.compute import ComputeRequest, measure_compute
from phone_agent.contract.errors import BadRequestError
from phone_agent.nn.packing import State
from phone_agent.nn.plan.arena import BufferTooLargeError, Lifetime, assign_offsets
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.ops import FLOAT, Buffer
from phone_agent.nn.plan.options import Options

Array = NDArray[Any]
LENET = models.build("lenet", 10, (28, 28, 1))
BATCH = 4
OPTIONS = Options(bucket_bytes=20_000)


def images_of(backend: OpenClBackend | None = None) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    images = rng.normal(0, 1, (BATCH, *LENET.shape)).astype(np.float32)
    if backend is not None:
        room = backend.array(images.size).reshape(images.shape)
        room[...] = images
        images = room
    return images, rng.integers(0, 10, BATCH)


def in_shared_memory() -> tuple[OpenClBackend, State, OpenClExecutable]:
    backend = OpenClBackend()
    state = State(LENET, 1)
    state.move(backend.array)
    return backend, state, backend.compile(LENET, state, BATCH, OPTIONS)


def test_training_copies_nothing() -> None:
    """Values, gradients and images: the arrays of the host are the memory that the device computes in."""
    backend, state, executable = in_shared_memory()
    images, labels = images_of(backend)
    seen: list[tuple[int, int]] = []
    before = executable.copied
    for _ in range(2):
        executable.loss_and_gradients(images, labels, 1.0, ready=lambda *part: seen.append(part), need=lambda *_: None)
        state.values -= 0.1 * state.gradients
        executable.loss_and_gradients(images, labels, 0.5, accumulate=True)
    assert executable.copied == before
    assert len(seen) == 2 * len(bucket_slices(state.packing, OPTIONS.bucket_bytes)) > 4
    for array in (state.values, state.gradients):
        block = block_of(array)
        assert block is not None
        assert block.address == array.ctypes.data


def test_bench_compute_copies_nothing() -> None:
    """As training, so that it measures the same."""
    shared = OpenClBackend().shared
    before = shared.copied
    measure_compute(ComputeRequest("lenet", BATCH, 1, 2, backend="opencl"))
    assert shared.copied == before


def test_copied_bytes_are_counted() -> None:
    backend = OpenClBackend()
    state = State(LENET, 1)
    executable = backend.compile(LENET, state, BATCH, OPTIONS)
    images, labels = images_of()
    before = executable.copied
    executable.loss_and_gradients(images, labels, 1.0)
    assert (
        executable.copied - before == images.nbytes + 4 * state.values.nbytes
    )  # values and gradients, in both directions


def test_results_do_not_depend_on_shared_memory() -> None:
    backend, shared, executable = in_shared_memory()
    images, labels = images_of(backend)
    plain = State(LENET, 1)
    other = backend.compile(LENET, plain, BATCH, OPTIONS)
    assert executable.loss_and_gradients(images, labels, 1.0) == other.loss_and_gradients(images, labels, 1.0)
    np.testing.assert_array_equal(shared.gradients, plain.gradients)
    np.testing.assert_array_equal(executable.forward(images), other.forward(images))


def test_values_may_change_once_their_gradients_are_ready() -> None:
    """And are not read before `need` is called."""
    backend, state, executable = in_shared_memory()
    images, labels = images_of(backend)
    executable.loss_and_gradients(images, labels, 1.0)
    wanted, values = state.gradients.copy(), state.values.copy()
    state.values[:] = np.nan

    def need(start: int, end: int) -> None:
        state.values[start:end] = values[start:end]

    def ready(start: int, end: int) -> None:
        np.testing.assert_array_equal(state.gradients[start:end], wanted[start:end])
        state.values[start:end] = np.nan

    executable.loss_and_gradients(images, labels, 1.0, need=need, ready=ready)
    np.testing.assert_array_equal(state.gradients, wanted)


def test_after_an_error_all_memory_is_mapped_to_the_host() -> None:
    backend, state, executable = in_shared_memory()
    images, labels = images_of(backend)
    loss = executable.loss_and_gradients(images, labels, 1.0)

    def fail(_start: int, _end: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        executable.loss_and_gradients(images, labels, 1.0, ready=fail)
    state.gradients[:] = 0
    assert executable.loss_and_gradients(images, labels, 1.0) == loss


def test_scores_of_any_number_of_images() -> None:
    _, _, executable = in_shared_memory()
    images = np.random.default_rng(1).normal(0, 1, (7, *LENET.shape)).astype(np.float32)
    np.testing.assert_array_equal(executable.forward(images)[:2], executable.forward(images[:2]))


def test_profile_covers_every_op() -> None:
    backend, _, executable = in_shared_memory()
    times = executable.profile(*images_of(backend), runs=2)
    assert [time.kind for time in times][:2] == ["conv_forward", "pooling_forward"]
    assert all(time.seconds >= 0 for time in times)


def test_invalid_inputs_are_rejected() -> None:
    _, _, executable = in_shared_memory()
    images, labels = images_of()
    with pytest.raises(BadRequestError, match=r"images have shape \(28, 28, 3\)"):
        executable.forward(np.zeros((2, 28, 28, 3), np.float32))
    with pytest.raises(BadRequestError, match="label 10: the network has classes 0 to 9"):
        executable.loss_and_gradients(images, labels * 0 + 10, 1.0)
    with pytest.raises(BadRequestError, match="batch of 9"):
        executable.prepare([9])


def test_an_arena_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = models.build("resnet20", 10, (32, 32, 3))
    state = State(graph, 1)
    rng = np.random.default_rng(3)
    images, labels = rng.normal(0, 1, (8, *graph.shape)).astype(np.float32), rng.integers(0, 10, 8)
    whole = OpenClBackend().compile(graph, state, 8, Options())
    loss, wanted = whole.loss_and_gradients(images, labels, 1.0), state.gradients.copy()
    shared = OpenClBackend().shared
    small = replace(shared.device, limits=replace(shared.device.limits, allocation_bytes=1_200_000))
    monkeypatch.setattr(shared, "device", small)
    segmented = OpenClBackend().compile(graph, state, 8, Options())
    assert len(segmented._arena._buffers) > 4
    assert segmented.loss_and_gradients(images, labels, 1.0) == loss
    np.testing.assert_array_equal(state.gradients, wanted)
    with pytest.raises(BufferTooLargeError, match="the device allocates at most 1200000 at once"):
        OpenClBackend().compile(graph, state, 64, Options())
    with pytest.raises(MemoryLimitError, match="cannot allocate 2000000 bytes"):
        OpenClBackend().array(500_000)


@pytest.mark.parametrize("name", ["lenet", "mobilenet_reduced"])
def test_memory_estimate_matches_the_compiled_network(name: str) -> None:
    graph = models.build(name)
    options = options_for_backend("opencl", Options(threads=4), graph.shape)
    executable = OpenClBackend().compile(graph, State(graph, 1), 3, Options(threads=4))
    assert executable._scratch.size == estimate_memory(graph, 3, options).workspace > FLOAT
    assert executable.memory == estimate_memory(graph, 3, options)


def test_hybrid_memory_estimate_matches_both_parts() -> None:
    """Half of the batch on each device: at most the estimate, and not much less."""
    graph = models.build("mobilenet_reduced", 10, (32, 32, 3))
    options = Options(gpu_share=0.5)
    planned = estimate_memory(graph, 8, options_for_backend("hybrid", options, graph.shape))
    cpu, gpu = (get_backend(name).compile(graph, State(graph, 1), 4, options).memory for name in ("cpu", "opencl"))  # type: ignore[attr-defined]
    own = [part.arena + part.workspace + part.vectors for part in (cpu, gpu)]
    copies = 2 * FLOAT * graph.parameter_count + 4 * FLOAT * prod(graph.shape)
    beside = planned.total - planned.arena - planned.workspace - planned.vectors - (planned.momenta - cpu.momenta)
    taken = beside + sum(own) + copies
    assert 0.9 * planned.total < taken <= 1.01 * planned.total


def test_no_buffer_spans_two_segments() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        lives = [
            Lifetime(Buffer(str(number), int(rng.integers(1, 1000))), first, first + int(rng.integers(0, 9)))
            for number, first in enumerate(rng.integers(0, 20, 30).tolist())
        ]
        layout = assign_offsets(lives, 1024)
        for life in lives:
            start = layout.offsets[life.buffer]
            assert start // 1024 == (start + life.bytes - 1) // 1024
            for other in lives:
                begin = layout.offsets[other.buffer]
                assert (
                    other is life
                    or not other.overlaps(life)
                    or begin >= start + life.bytes
                    or start >= begin + other.bytes
                )


def test_a_kernel_that_does_not_compile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "common.cl").write_text("")
    (tmp_path / "broken.cl").write_text("kernel void broken(global float *x) { x[0] = nonsense; }")
    monkeypatch.setattr(program, "SOURCES", tmp_path)
    with pytest.raises(ProgramError, match=r"(?s)broken.cl \(-DX=float\) on .*nonsense"):
        ProgramCache(find_device()).kernel("broken", "broken", {"X": "float"})


def test_tuning_depends_on_kernels_and_launches(tmp_path: Path) -> None:
    copy = shutil.copytree(program.PACKAGE, tmp_path / "opencl")
    unchanged = program.kernels_id()
    (copy / "watchdog.py").write_text("")
    assert program.kernels_id(copy) == unchanged
    seen = {unchanged}
    for name in ("kernels/convolution.cl", "launches/convolution.py", "tiles.py"):
        path = copy / name
        path.write_text(path.read_text() + "\n")
        seen.add(program.kernels_id(copy))
    assert len(seen) == 4


def test_a_hanging_kernel_ends_the_process() -> None:
    """A real kernel that never ends, in a subprocess."""
    done = subprocess.run([sys.executable, "-c", HANG], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == EXIT_CODE, done.stderr
    assert "hangs: 'conv7 conv_forward' did not finish within 1 s; giving up" in done.stderr


HANG = """
import numpy as np
from phone_agent.backends.opencl.device import find_device, load_pyopencl
from phone_agent.backends.opencl.watchdog import Watchdog

cl, device = load_pyopencl(), find_device()
queue = cl.CommandQueue(device.context)
source = "kernel void spin(global volatile int *x) { while (x[0] == 0) x[1]++; }"
kernel = cl.Kernel(cl.Program(device.context, source).build(), "spin")
buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 8)
cl.enqueue_fill_buffer(queue, buffer, np.int32(0), 0, 8).wait()
kernel.set_arg(0, buffer)
event = cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
Watchdog("the device", limit=1.0).wait([("conv7 conv_forward", event)])
"""


class Slow:
    """An event that completes when `finish` is called."""

    def __init__(self) -> None:
        self._finished = threading.Event()

    @property
    def command_execution_status(self) -> int:
        return 0 if self._finished.is_set() else 1

    def finish(self) -> None:
        self._finished.set()

    def wait(self) -> None:
        self._finished.wait()


def test_a_slow_device_that_makes_progress_is_not_a_hang() -> None:
    reported: list[str] = []
    events = [Slow() for _ in range(6)]
    watchdog = Watchdog("it", limit=2.0, on_hang=reported.append)
    timers = [threading.Timer(0.6 * (number + 1), event.finish) for number, event in enumerate(events)]
    for timer in timers:
        timer.start()
    watchdog.wait([(str(number), event) for number, event in enumerate(events)])
    assert not reported


def test_without_pyopencl_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(NoDeviceError, match=r"pyopencl cannot be loaded .*; .* on a computer: pip install pyopencl"):
        load_pyopencl.__wrapped__()
    monkeypatch.setattr(device, "VENDOR_DRIVER", Path("/dev/null"))
    with pytest.raises(NoDeviceError, match=r"pyopencl cannot be loaded .*; clusterctl provision builds it on phones"):
        load_pyopencl.__wrapped__()


def test_a_broken_driver_is_reported_with_the_linker_error(tmp_path: Path) -> None:
    (tmp_path / "libOpenCL.so").write_text("not a library")
    script = f"""
from pathlib import Path
from phone_agent.backends.opencl import device
device.VENDOR_DRIVER = Path({str(tmp_path / "libOpenCL.so")!r})
device.find_device()
"""
    reported = without_drivers(script, tmp_path)
    assert "NoDeviceError: no OpenCL platform found" in reported
    assert "libOpenCL.so does not load: " in reported
    assert "file too short" in reported or "invalid ELF header" in reported


def test_without_a_driver_there_is_no_device(tmp_path: Path) -> None:
    reported = without_drivers("from phone_agent.backends.opencl.device import find_device; find_device()", tmp_path)
    assert "NoDeviceError: no OpenCL platform found" in reported
    assert "pocl-opencl-icd" in reported


def without_drivers(script: str, home: Path) -> str:
    """The stderr of the script."""
    environment = {"OCL_ICD_VENDORS": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stderr


def test_nothing_is_written_outside_the_cache(tmp_path: Path) -> None:
    """Compiling and running leaves files in our cache directory only."""
    script = """
from phone_agent.core.ops import Kind
from tests.phone_agent.core.cases import CASES
from tests.phone_agent.backends.opencl.on_device import wrong_in
print(*wrong_in(next(iter(CASES[Kind.ADD_FORWARD](full=False)))))
"""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
    left = {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {(".cache", "clusterctl")}
