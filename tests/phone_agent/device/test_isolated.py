"""Isolated subprocesses: whatever happens to the child, the parent gets a result or an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from phone_agent.contract.errors import AgentError, ErrorCode, error_line
from phone_agent.device.isolated import Gate, IsolatedError, IsolatedProcess, run_isolated
from tests.labs import eventually


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_result_is_returned() -> None:
    assert run_isolated(lambda: {"count": 3, "times": [0.5]}, 30) == {"count": 3, "times": [0.5]}


def test_killed_process_is_reported_with_its_signal() -> None:
    with pytest.raises(IsolatedError, match=r"killed by signal 9 \(SIGKILL\)") as caught:
        run_isolated(lambda: os.kill(os.getpid(), signal.SIGKILL), 30)
    assert (caught.value.signal, caught.value.code) == (signal.SIGKILL, ErrorCode.KILLED)


def test_hanging_process_is_killed(tmp_path: Path) -> None:
    def hang() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(1000)

    with pytest.raises(IsolatedError, match="no answer within 1 s"):
        run_isolated(hang, 1.0)
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("new_session", [True, False])
def test_children_of_the_process_are_killed(tmp_path: Path, *, new_session: bool) -> None:
    def start_child() -> None:
        child = subprocess.Popen(["sleep", "1000"])
        (tmp_path / "pid").write_text(str(child.pid))

    run_isolated(start_child, 30, new_session=new_session)
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not is_running(pid))


def test_exceptions_are_reported() -> None:
    def fail() -> None:
        raise AgentError("OpenCL has no device here", code=ErrorCode.NO_OPENCL_DEVICE)

    def run_out_of_memory() -> None:
        raise MemoryError

    with pytest.raises(IsolatedError, match=r"^OpenCL has no device here$") as caught:
        run_isolated(fail, 30)
    assert (caught.value.code, caught.value.traceback) == (ErrorCode.NO_OPENCL_DEVICE, [])
    with pytest.raises(IsolatedError, match="out of memory"):
        run_isolated(run_out_of_memory, 30)
    with pytest.raises(IsolatedError, match="ZeroDivisionError") as caught:
        run_isolated(lambda: 1 // 0, 30)
    assert "ZeroDivisionError" in caught.value.traceback[-1]
    with pytest.raises(IsolatedError, match="exited with code 3"):
        run_isolated(lambda: os._exit(3), 30)


def test_oversized_answer_is_an_error() -> None:
    with pytest.raises(IsolatedError) as caught:
        run_isolated(lambda: "x" * 10_000_000, 30)
    assert caught.value.code is ErrorCode.TOO_MUCH_OUTPUT


def test_child_never_continues_with_the_code_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent stops reading before the child has written everything."""
    kill, parent, continued = os.kill, os.getpid(), tmp_path / "continued"

    def kill_later(pid: int, number: int) -> None:
        time.sleep(0.5)  # the child gets a broken pipe meanwhile
        kill(pid, number)

    monkeypatch.setattr(os, "kill", kill_later)
    try:
        with suppress(IsolatedError):
            run_isolated(lambda: "x" * 10_000_000, 30)
    finally:
        if os.getpid() != parent:
            continued.touch()
            os._exit(1)
    assert not continued.exists()


def test_processes_start_together() -> None:
    def work(gate: Gate) -> float:
        gate()
        return time.monotonic()

    with IsolatedProcess.fork(work, 30) as one, IsolatedProcess.fork(work, 30) as other:
        one.wait_until_ready()
        other.wait_until_ready()
        released = time.monotonic()
        one.release()
        other.release()
        assert min(one.result(), other.result()) >= released


def rows(script: str, limit_s: float = 30) -> list[dict[str, object]]:
    with IsolatedProcess.spawn([sys.executable, "-c", script], limit_s) as process:
        return list(process.rows())


def test_rows_of_a_command_are_returned() -> None:
    assert rows("""print('{"a": 1}\\n{"b": 2}')""") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("script", "message", "code"),
    [
        ("import os; os.kill(os.getpid(), 11)", r"killed by signal 11 \(SIGSEGV\)", ErrorCode.KILLED),
        ("import time; time.sleep(60)", "no answer within 1 s", ErrorCode.TIMED_OUT),
        ("raise SystemExit('no device')", "exited with code 1: no device", ErrorCode.BAD_ANSWER),
    ],
)
def test_failed_command_is_an_error(script: str, message: str, code: ErrorCode) -> None:
    with pytest.raises(IsolatedError, match=message) as caught:
        rows(script, limit_s=1.0)
    assert caught.value.code is code


def test_error_line_of_a_command_is_its_error() -> None:
    line = error_line(AgentError("no device", code=ErrorCode.NO_OPENCL_DEVICE))
    with pytest.raises(IsolatedError, match=r"^no device$") as caught:
        rows(f"raise SystemExit({line!r})")
    assert caught.value.code is ErrorCode.NO_OPENCL_DEVICE
