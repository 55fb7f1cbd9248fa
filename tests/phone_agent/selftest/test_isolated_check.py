"""Checks that hang, crash or are killed produce a result and leave no process behind."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from phone_agent.contract.assumptions import CheckResult, Status, ok
from phone_agent.contract.errors import AgentError
from phone_agent.selftest.isolated_check import run_isolated_check
from tests.labs import eventually


def test_the_result_is_returned() -> None:
    assert run_isolated_check(lambda: ok("fine", figure=3), 30) == CheckResult(Status.OK, "fine", {"figure": 3})


def test_a_hanging_check_is_killed_with_its_children(tmp_path: Path) -> None:
    def hang() -> CheckResult:
        child = subprocess.Popen(["sleep", "1000"])
        (tmp_path / "pid").write_text(str(child.pid))
        time.sleep(1000)
        return ok("never")

    found = run_isolated_check(hang, 1.0)
    assert (found.status, found.detail) == (Status.FAILED, "no answer within 1 s")
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_crash_reports_its_signal() -> None:
    def crash() -> CheckResult:
        faulthandler.disable()
        ctypes.string_at(0)
        return ok("never")

    found = run_isolated_check(crash, 30)
    assert found.status is Status.FAILED
    assert found.detail == "killed by signal 11 (SIGSEGV)"


def test_signal_handlers_of_libraries_are_reset() -> None:
    def refused() -> CheckResult:
        os.kill(os.getpid(), signal.SIGSYS)
        return ok("alive")

    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    returns = ctypes.cast(libc.abs, ctypes.c_void_p)  # takes the number of the signal, and does nothing
    before = libc.signal(int(signal.SIGSYS), returns)
    try:
        found = run_isolated_check(refused, 10)
    finally:
        libc.signal(int(signal.SIGSYS), ctypes.c_void_p(before))
    assert (found.status, found.evidence) == (Status.FAILED, {"signal": signal.SIGSYS})


def test_an_early_exit_is_reported() -> None:
    assert run_isolated_check(lambda: os._exit(3), 30).detail == "exited with code 3: no answer"


def test_agent_errors_are_failures_and_other_exceptions_are_unknown() -> None:
    def complain() -> CheckResult:
        raise AgentError("TMPDIR is not set")

    def surprise() -> CheckResult:
        raise ZeroDivisionError("of nothing")

    assert run_isolated_check(complain, 30) == CheckResult(Status.FAILED, "TMPDIR is not set")
    found = run_isolated_check(surprise, 30)
    assert (found.status, found.detail) == (Status.UNKNOWN, "ZeroDivisionError: of nothing")
    assert "surprise" in str(found.evidence["traceback"])


def test_output_of_a_check_is_discarded() -> None:
    program = """
from phone_agent.selftest.isolated_check import run_isolated_check
from phone_agent.contract.assumptions import ok
import os
def loud():
    os.write(1, b"noise")
    return ok("quiet")
print(run_isolated_check(loud, 30).detail)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "quiet\n"


def test_oversized_evidence_is_rejected() -> None:
    assert run_isolated_check(lambda: ok("much", text="x" * 10_000_000), 30).status is Status.FAILED
