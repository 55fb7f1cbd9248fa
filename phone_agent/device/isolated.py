"""Isolated subprocesses: work that may hang, crash or run out of memory, and whose failure is reported as an error.

A subprocess runs either a Python function (`fork`) or a command that prints one JSON object per line (`spawn`). It has
a time limit, and ends with everything it started when its block ends. Several forked processes can start at the same
moment: each prepares, reports that it is ready, and waits to be released.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, NoReturn, Self

from phone_agent.contract.errors import AgentError, ErrorCode, code_of, describe, parse_code, read_error_line
from phone_agent.device.process import session_members

Gate = Callable[[], None]  # reports that this process is ready, and returns once it is released
Work = Callable[[Gate], Any]  # returns what can be written as JSON

MAX_MESSAGE_BYTES = 1 << 20
TRACEBACK_LINES = 6
PR_SET_PDEATHSIG = 1


class IsolatedError(AgentError):
    """The process failed. `signal`: what killed it. `traceback`: of an exception that is not an AgentError."""

    code = ErrorCode.MEASUREMENT_FAILED

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        signal: int | None = None,
        traceback: Sequence[str] = (),
    ) -> None:
        super().__init__(message, code=code)
        self.signal, self.traceback = signal, list(traceback)


class IsolatedProcess:
    """Use as a context manager. The constructor is internal: call `fork` or `spawn`."""

    def __init__(self, pid: int, channel: socket.socket, wait: Callable[[], int], limit_s: float) -> None:
        self._pid, self._channel, self._wait = pid, channel, wait
        self._limit_s, self._deadline = limit_s, time.monotonic() + limit_s
        self._received = b""
        self._ended = False
        self._stderr: IO[str] | None = None

    @classmethod
    def fork(cls, work: Work, limit_s: float, *, new_session: bool = False) -> Self:
        """To be called while this process has one thread.

        `new_session`: so that the process can be ended with children that leave its process group. Not the default,
        because Linux divides CPU time between sessions first, whatever the niceness of their processes (autogroup).
        """
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _run_child(work, theirs, parent, new_session=new_session)
        theirs.close()
        return cls(pid, ours, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), limit_s)

    @classmethod
    def spawn(cls, argv: Sequence[str], limit_s: float) -> Self:
        ours, theirs = socket.socketpair()
        stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        with theirs:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=theirs.fileno(), stderr=stderr, process_group=0
            )
        isolated = cls(process.pid, ours, process.wait, limit_s)
        isolated._stderr = stderr
        return isolated

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Kills the process and its children."""
        self._channel.close()
        for pid in {self._pid, *session_members(self._pid)} if not self._ended else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        if not self._ended:
            self._wait()
        if self._stderr is not None:
            self._stderr.close()

    def wait_until_ready(self) -> None:
        self._message("ready")

    def release(self) -> None:
        with suppress(OSError):  # it ended: its result has the reason
            self._channel.sendall(b"\n")

    def result(self) -> Any:
        return self._message("result")

    def rows(self) -> Iterator[dict[str, Any]]:
        """What a spawned command prints, until it ends. Raises IsolatedError if it fails."""
        while line := self._read_line():
            yield json.loads(line)
        if exit_code := self._exit_code():
            raise self._failure(exit_code)

    def _message(self, wanted: str) -> Any:
        line = self._read_line()
        if not line:
            raise self._failure(self._exit_code())
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise IsolatedError(message["error"], code=parse_code(message["code"]), traceback=message["traceback"])
        return message[wanted]

    def _read_line(self) -> bytes:
        """Empty at the end."""
        while b"\n" not in self._received:
            self._channel.settimeout(max(0.001, self._deadline - time.monotonic()))
            try:
                received = self._channel.recv(65536)
            except TimeoutError:
                raise IsolatedError(f"no answer within {self._limit_s:g} s", code=ErrorCode.TIMED_OUT) from None
            except OSError:
                received = b""
            if not received:
                return b""
            self._received += received
            if len(self._received) > MAX_MESSAGE_BYTES:
                message = f"an answer of more than {MAX_MESSAGE_BYTES >> 10} KiB"
                raise IsolatedError(message, code=ErrorCode.TOO_MUCH_OUTPUT)
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _exit_code(self) -> int:
        self._ended = True
        return self._wait()

    def _failure(self, exit_code: int) -> IsolatedError:
        if exit_code < 0:
            name = signal.Signals(-exit_code).name
            return IsolatedError(f"killed by signal {-exit_code} ({name})", code=ErrorCode.KILLED, signal=-exit_code)
        output = self._error_output()
        if reported := read_error_line(output):
            code, message = reported
            return IsolatedError(message, code=code)
        last = output.splitlines()[-1:] or ["no answer"]
        return IsolatedError(f"exited with code {exit_code}: {last[0]}", code=ErrorCode.BAD_ANSWER)

    def _error_output(self) -> str:
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        return self._stderr.read().strip()


def run_isolated(work: Callable[[], Any], limit_s: float, *, new_session: bool = False) -> Any:
    """The result of the work. Raises IsolatedError."""
    with IsolatedProcess.fork(lambda _: work(), limit_s, new_session=new_session) as process:
        return process.result()


def _run_child(work: Work, channel: socket.socket, parent: int, *, new_session: bool) -> NoReturn:
    """Exits in any case: the code above the fork belongs to the parent."""

    def send(message: dict[str, Any]) -> None:
        channel.sendall(json.dumps(message, default=str).encode() + b"\n")

    def gate() -> None:
        send({"ready": True})
        if not channel.recv(1):  # the parent is gone
            os._exit(1)

    try:
        os.setsid() if new_session else os.setpgid(0, 0)
        _end_with(parent)
        _discard_output()
        _reset_signals()
        try:
            message = {"result": work(gate)}
        except Exception as error:  # noqa: BLE001 - reported to the parent
            message = _error_message(error)
        send(message)
    finally:
        os._exit(0)


def _error_message(error: Exception) -> dict[str, Any]:
    text = "out of memory" if isinstance(error, MemoryError) else describe(error)
    lines = [] if isinstance(error, AgentError) else traceback.format_exc().splitlines()[-TRACEBACK_LINES:]
    return {"error": text, "code": code_of(error), "traceback": lines}


def _end_with(parent: int) -> None:
    """The kernel kills this process when its parent ends, even if a driver hangs."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)


def _discard_output() -> None:
    """Drivers print to stdout and stderr."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _reset_signals() -> None:
    """To their default actions, as after exec. Libraries of the parent may have installed handlers that return, as LLVM
    in an OpenCL driver does for SIGSYS, of which Python does not know. Ignored signals stay ignored."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
