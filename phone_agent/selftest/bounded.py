"""A look at the phone in a process of its own: one that hangs, crashes or is killed by the kernel is an answer too."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from contextlib import suppress
from typing import NoReturn

from phone_agent.contract.assumptions import CheckFunction, CheckResult, Status, failed, unknown
from phone_agent.contract.errors import AgentError
from phone_agent.device.process import session_members

MAX_BYTES = 64 * 1024


def bounded(look: CheckFunction, limit_s: float) -> CheckResult:
    """Never raises, and never takes much longer than `limit_s`. To be called while this process has one thread."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(look, writer)
    os.close(writer)
    try:
        answer = _read(reader, time.monotonic() + limit_s)
    finally:
        os.close(reader)
        _end(child)
    _, how = os.waitpid(child, 0)
    if answer is None:
        return failed(f"no answer within {limit_s:g} s")
    return _parse(answer) or _died(how)


def _answer(look: CheckFunction, writer: int) -> NoReturn:
    """Ends the process whatever happens: it must not go on with what its parent is doing."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # what it prints is not ours
            os.dup2(nothing, stream)
        _die_of_signals()
        found = _looked(look)
        document = {"status": found.status, "detail": found.detail, "evidence": found.evidence}
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(document, default=str).encode())
    finally:
        os._exit(0)


def _die_of_signals() -> None:
    """As a new program does. Libraries of the parent may have set handlers that return, as LLVM in an OpenCL driver
    does for SIGSYS; Python's own table does not know of those. What was ignored stays so."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _looked(look: CheckFunction) -> CheckResult:
    try:
        return look()
    except AgentError as error:
        return failed(str(error))
    except Exception as error:  # noqa: BLE001 - the next check must run, and somebody must see what happened here
        return unknown(f"{type(error).__name__}: {error}", traceback=traceback.format_exc().splitlines()[-6:])


def _read(reader: int, deadline: float) -> bytes | None:
    """Everything until the other side has closed; None when that takes too long."""
    arrived = b""
    while len(arrived) <= MAX_BYTES:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        piece = os.read(reader, 65536)
        if not piece:
            break
        arrived += piece
    return arrived


def _end(child: int) -> None:
    """And all it started: those keep its session."""
    for pid in {child, *session_members(child)}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _parse(answer: bytes) -> CheckResult | None:
    try:
        document = json.loads(answer)
        return CheckResult(Status(document["status"]), document["detail"], document["evidence"])
    except (ValueError, KeyError, TypeError):
        return None


def _died(how: int) -> CheckResult:
    if os.WIFSIGNALED(how):
        number = os.WTERMSIG(how)
        return failed(f"killed by signal {number} ({signal.Signals(number).name})", signal=number)
    return failed(f"ended with {os.waitstatus_to_exitcode(how)} and no answer")
