"""Work in a process of its own: whatever becomes of it is told."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from phone_agent.contract.errors import AgentError
from phone_agent.device_study.isolated import Apart, Gate, LostError, alone
from tests.labs import eventually


def test_the_result_comes_back() -> None:
    assert alone(lambda _: {"count": 3, "times": [0.5]}, 30) == {"count": 3, "times": [0.5]}


def test_one_that_is_killed_for_its_memory_is_told() -> None:
    with pytest.raises(LostError, match="killed by SIGKILL"):
        alone(lambda _: os.kill(os.getpid(), signal.SIGKILL), 30)


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    def hang(_: Gate) -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(1000)

    with pytest.raises(LostError, match="no answer in 1 s"):
        alone(hang, 1.0)
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_complaints_and_surprises_are_told() -> None:
    def complain(_: Gate) -> None:
        raise AgentError("OpenCL has no device here")

    def run_out(_: Gate) -> None:
        raise MemoryError

    with pytest.raises(LostError, match=r"^OpenCL has no device here$"):
        alone(complain, 30)
    with pytest.raises(LostError, match="out of memory"):
        alone(run_out, 30)
    with pytest.raises(LostError, match="ZeroDivisionError"):
        alone(lambda _: 1 // 0, 30)
    with pytest.raises(LostError, match="ended with 3"):
        alone(lambda _: os._exit(3), 30)


def test_all_wait_for_the_gate() -> None:
    def work(gate: Gate) -> float:
        gate()
        return time.monotonic()

    with Apart(work, 30) as one, Apart(work, 30) as other:
        one.wait_at_gate()
        other.wait_at_gate()
        opened = time.monotonic()
        one.let_go()
        other.let_go()
        assert min(one.result(), other.result()) >= opened
