"""Threads of the core: started, shared, left behind."""

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
from phone_agent.core.team import Program, Team, aligned, workspace_bytes


def _subtraction(count: int, amount: float = 1.0) -> tuple[Program, np.ndarray]:
    """values -= amount, and the values."""
    values, added = aligned(count), aligned(count)
    added[:] = -amount
    op = ops.Decode(added.ctypes.data, values.ctypes.data, count, ops.Number.FP32, accumulate=True)
    op.arrays = (values, added)  # live as long
    return Program.of([(ops.Kind.DECODE, op)]), values


@pytest.mark.parametrize("threads", [-1, 0, 65, 1000])
def test_impossible_numbers_of_threads_are_refused(threads: int) -> None:
    with pytest.raises(CoreError, match=f"{threads} threads: the core runs on 1 to 64"):
        Team(threads)


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
def test_any_number_of_threads_does_all_the_work(threads: int) -> None:
    team = Team(threads)
    program, values = _subtraction(100_007)
    team.run(program)
    team.close()
    assert (values == -1).all()


def test_many_programs_in_a_row() -> None:
    """More meetings than a lost wake-up survives: some find the threads spinning, some asleep."""
    team = Team(2)
    program, values = _subtraction(1000)
    for number in range(3000):
        team.run(program)
        if number % 500 == 0:
            threading.Event().wait(0.01)
    team.close()
    assert (values == -3000).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_that_slow_processors_down_are_taken_for_nothing_inside_only(threads: int) -> None:
    tiny = np.float32(2.0**-130)
    program, values = _subtraction(100_000, -float(tiny))
    team = Team(threads)
    team.run(program)
    team.close()
    assert (values == 0).all()
    assert tiny + tiny > tiny > 0  # the caller's arithmetic is as it was


def test_long_programs_and_parts_of_them() -> None:
    program, values = _subtraction(64)
    long = Program.of([(ops.Kind.DECODE, program.kept[0])] * 1000)
    team = Team(3)
    team.run(long)
    team.run(long, 10, 15)
    team.run(long, 7, 7)
    team.close()
    assert (values == -1005).all()


def test_empty_programs_between_others() -> None:
    """Nobody meets in them: the threads must not take one for the program that follows."""
    program, values = _subtraction(100)
    team = Team(3)
    for _ in range(500):
        team.run(program, 0, 0)
        team.run(program)
        team.run(program, 1, 1)
    team.close()
    assert (values == -500).all()


def test_times_of_steps_are_told() -> None:
    program, _ = _subtraction(100_000)
    times = np.zeros(1, np.int64)
    Team(2).run(program, nanoseconds=times)
    assert 0 < times[0] < 10**9


def test_two_callers_take_turns() -> None:
    team = Team(2)
    program, values = _subtraction(5000)

    def call() -> None:
        for _ in range(200):
            team.run(program)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    team.close()
    assert (values == -800).all()


def test_closed_team_refuses() -> None:
    team = Team(2)
    team.close()
    team.close()
    with pytest.raises(CoreError, match="have ended"):
        team.run(_subtraction(1)[0])


def test_threads_that_cannot_start_are_told_and_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def at_most_two(thread: threading.Thread) -> None:
        if len(_threads()) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", at_most_two)
    with pytest.raises(CoreError, match="only 3 of 8 threads can be started"):
        Team(8)
    assert _threads() == set()


@pytest.mark.parametrize(("first", "last"), [(-1, 1), (1, 0), (0, 2), (2, None)])
def test_steps_a_program_does_not_have_are_refused(first: int, last: int | None) -> None:
    with pytest.raises(CoreError, match=r"steps -?\d to \d of a program of 1"):
        Team(1).run(_subtraction(1)[0], first, last)


@pytest.mark.parametrize("times", [np.zeros(0, np.int64), np.zeros(1, np.int32), np.zeros((1, 2), np.int64).T[:, :0]])
def test_too_little_room_for_times_is_refused(times: np.ndarray) -> None:
    with pytest.raises(CoreError, match="the times of 1 steps"):
        Team(1).run(_subtraction(1)[0], nanoseconds=times)


def test_closing_waits_for_the_program_that_runs() -> None:
    program, values = _subtraction(1 << 20)
    long = Program.of([(ops.Kind.DECODE, program.kept[0])] * 50)
    team = Team(2)
    runner = threading.Thread(target=team.run, args=(long,))
    runner.start()
    while not team._running.locked() and runner.is_alive():
        pass
    team.close()
    runner.join()
    assert (values == -50).all()


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("core-")}


def test_forgotten_team_ends_its_threads() -> None:
    assert _threads() == set()
    team = Team(4)
    assert _threads() == {"core-1", "core-2", "core-3"}
    del team
    gc.collect()
    assert _threads() == set()


def test_no_memory_or_threads_are_left_of_many_teams() -> None:
    program, values = _subtraction(100)
    for _ in range(100):
        Team(3).run(program)
    assert (values == -100).all()
    assert _threads() == set()


def test_workspace_is_that_of_the_hungriest() -> None:
    program, _ = _subtraction(10)
    assert workspace_bytes(2, [(ops.Kind.DECODE, program.kept[0])]) >= 0
    assert workspace_bytes(2, []) == 0


def _run(code: str) -> subprocess.CompletedProcess[str]:
    preamble = (
        "from tests.phone_agent.core.test_team import *\nfrom tests.phone_agent.core.test_team import _subtraction\n"
    )
    return subprocess.run(
        [sys.executable, "-c", preamble + code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("ending", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1), ("os._exit(4)", 4), ("os.kill(os.getpid(), 15)", -15)],
)
def test_process_ends_with_threads_parked(ending: str, code: int) -> None:
    done = _run(f"team = Team(3)\nprogram, values = _subtraction(99)\nteam.run(program)\n{ending}\n")
    assert done.returncode == code, done.stderr


def test_forked_process_is_told_that_it_has_no_threads() -> None:
    done = _run(
        "team = Team(2)\n"
        "program, values = _subtraction(99)\n"
        "team.run(program)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try: team.run(program)\n"
        "    except CoreError as error: print(error, flush=True)\n"
        "    own = Team(2); own.run(program); own.close()\n"
        "    sys.exit(int(values[0]) + 2)\n"
        "print(os.waitpid(child, 0)[1])\n"
        "team.run(program)\n"
        "print(values[0])\n"
    )
    told, child, parents = done.stdout.splitlines()
    assert "forked" in told
    assert (child, parents) == ("0", "-2.0"), done


def test_other_threads_of_python_run_meanwhile() -> None:
    """The core holds no interpreter lock: a program of a second would be a second without heartbeats."""
    program, _ = _subtraction(1 << 20)
    long = Program.of([(ops.Kind.DECODE, program.kept[0])] * 200)
    ticks = []
    runner = threading.Thread(target=Team(1).run, args=(long,))
    runner.start()
    while runner.is_alive():
        ticks.append(os.getpid())
        runner.join(0.001)
    assert len(ticks) > 5
