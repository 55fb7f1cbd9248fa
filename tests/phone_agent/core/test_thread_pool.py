"""The thread pool: start, share and end its threads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from phone_agent.core import ops
from phone_agent.core.library import CoreError
from phone_agent.core.thread_pool import Program, ThreadPool, aligned, workspace_bytes

_ALIVE: list[object] = []  # arrays that only a struct points to


def _subtraction(count: int, amount: float = 1.0) -> tuple[Program, np.ndarray]:
    """values -= amount, and the values."""
    values, added = aligned(count), aligned(count)
    added[:] = -amount
    op = ops.Decode(added.ctypes.data, values.ctypes.data, count, ops.DType.FP32, accumulate=True)
    _ALIVE.append(added)
    return Program.of([(ops.Kind.DECODE, op)]), values


@pytest.mark.parametrize("threads", [-1, 0, 65, 1000])
def test_unsupported_thread_counts_are_refused(threads: int) -> None:
    with pytest.raises(CoreError, match=f"{threads} threads requested, but only 1 to 64"):
        ThreadPool(threads)


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
def test_any_number_of_threads_does_all_the_work(threads: int) -> None:
    pool = ThreadPool(threads)
    program, values = _subtraction(100_007)
    pool.run(program)
    pool.close()
    assert (values == -1).all()


def test_many_programs_in_a_row() -> None:
    """Enough barriers to find a lost wake-up: some find the workers spinning, some asleep."""
    pool = ThreadPool(2)
    program, values = _subtraction(1000)
    for number in range(3000):
        pool.run(program)
        if number % 500 == 0:
            threading.Event().wait(0.01)
    pool.close()
    assert (values == -3000).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_denormals_are_flushed_to_zero_inside_a_program_only(threads: int) -> None:
    tiny = np.float32(2.0**-130)
    program, values = _subtraction(100_000, -float(tiny))
    pool = ThreadPool(threads)
    pool.run(program)
    pool.close()
    assert (values == 0).all()
    assert tiny + tiny > tiny > 0  # the caller keeps its denormals


def test_long_programs_and_parts_of_them() -> None:
    program, values = _subtraction(64)
    long = Program.of([(ops.Kind.DECODE, program.structs[0])] * 1000)
    pool = ThreadPool(3)
    pool.run(long)
    pool.run(long, 10, 15)
    pool.run(long, 7, 7)
    pool.close()
    assert (values == -1005).all()


def test_empty_programs_between_other_programs() -> None:
    """They have no barrier: a worker must not mistake one for the next program."""
    program, values = _subtraction(100)
    pool = ThreadPool(3)
    for _ in range(500):
        pool.run(program, 0, 0)
        pool.run(program)
        pool.run(program, 1, 1)
    pool.close()
    assert (values == -500).all()


def test_step_times_are_reported() -> None:
    program, _ = _subtraction(100_000)
    times = np.zeros(1, np.int64)
    ThreadPool(2).run(program, nanoseconds=times)
    assert 0 < times[0] < 10**9


def test_two_callers_take_turns() -> None:
    pool = ThreadPool(2)
    program, values = _subtraction(5000)

    def call() -> None:
        for _ in range(200):
            pool.run(program)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    pool.close()
    assert (values == -800).all()


def test_closed_pool_refuses_to_run() -> None:
    pool = ThreadPool(2)
    pool.close()
    pool.close()
    with pytest.raises(CoreError, match="is closed"):
        pool.run(_subtraction(1)[0])


def test_threads_that_cannot_start_are_reported_and_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def at_most_two(thread: threading.Thread) -> None:
        if len(_threads()) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", at_most_two)
    with pytest.raises(CoreError, match="only 3 of 8 threads could be started"):
        ThreadPool(8)
    assert _threads() == set()


@pytest.mark.parametrize(("first", "last"), [(-1, 1), (1, 0), (0, 2), (2, None)])
def test_steps_outside_the_program_are_refused(first: int, last: int | None) -> None:
    with pytest.raises(CoreError, match=r"steps -?\d to \d of a 1-step program"):
        ThreadPool(1).run(_subtraction(1)[0], first, last)


@pytest.mark.parametrize("times", [np.zeros(0, np.int64), np.zeros(1, np.int32), np.zeros((1, 2), np.int64).T[:, :0]])
def test_unsuitable_arrays_for_times_are_refused(times: np.ndarray) -> None:
    with pytest.raises(CoreError, match="the times of 1 steps"):
        ThreadPool(1).run(_subtraction(1)[0], nanoseconds=times)


def test_close_waits_for_the_running_program() -> None:
    program, values = _subtraction(1 << 20)
    long = Program.of([(ops.Kind.DECODE, program.structs[0])] * 50)
    pool = ThreadPool(2)
    runner = threading.Thread(target=pool.run, args=(long,))
    runner.start()
    while not pool._running.locked() and runner.is_alive():
        pass
    pool.close()
    runner.join()
    assert (values == -50).all()


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("core-")}


def test_garbage_collected_pool_ends_its_threads() -> None:
    assert _threads() == set()
    pool = ThreadPool(4)
    assert _threads() == {"core-1", "core-2", "core-3"}
    del pool
    gc.collect()
    assert _threads() == set()


def test_many_pools_leave_no_threads() -> None:
    program, values = _subtraction(100)
    for _ in range(100):
        ThreadPool(3).run(program)
    assert (values == -100).all()
    assert _threads() == set()


def test_workspace_is_the_largest_any_op_needs() -> None:
    program, _ = _subtraction(10)
    assert workspace_bytes(2, [(ops.Kind.DECODE, program.structs[0])]) >= 0
    assert workspace_bytes(2, []) == 0


def _run(code: str) -> subprocess.CompletedProcess[str]:
    module = "tests.phone_agent.core.test_thread_pool"
    preamble = f"from {module} import *\nfrom {module} import _subtraction\n"
    return subprocess.run(
        [sys.executable, "-c", preamble + code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("ending", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1), ("os._exit(4)", 4), ("os.kill(os.getpid(), 15)", -15)],
)
def test_process_ends_while_workers_wait(ending: str, code: int) -> None:
    done = _run(f"pool = ThreadPool(3)\nprogram, values = _subtraction(99)\npool.run(program)\n{ending}\n")
    assert done.returncode == code, done.stderr


def test_forked_process_cannot_use_the_pool() -> None:
    done = _run(
        "pool = ThreadPool(2)\n"
        "program, values = _subtraction(99)\n"
        "pool.run(program)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try: pool.run(program)\n"
        "    except CoreError as error: print(error, flush=True)\n"
        "    own = ThreadPool(2); own.run(program); own.close()\n"
        "    sys.exit(int(values[0]) + 2)\n"
        "print(os.waitpid(child, 0)[1])\n"
        "pool.run(program)\n"
        "print(values[0])\n"
    )
    told, child, parents = done.stdout.splitlines()
    assert "parent process" in told
    assert (child, parents) == ("0", "-2.0"), done


def test_other_python_threads_run_meanwhile() -> None:
    """The core releases the GIL: otherwise a one-second program would be one second without heartbeats."""
    program, _ = _subtraction(1 << 20)
    long = Program.of([(ops.Kind.DECODE, program.structs[0])] * 200)
    ticks = []
    runner = threading.Thread(target=ThreadPool(1).run, args=(long,))
    runner.start()
    while runner.is_alive():
        ticks.append(os.getpid())
        runner.join(0.001)
    assert len(ticks) > 5
