"""Work in a process of its own: what hangs, crashes or is killed for its memory there is told, and ends nothing else.

Several such processes can be made to start at the same moment: each prepares, waits at its gate, and is let go.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self

from phone_agent.contract.errors import AgentError, ErrorCode, code_of, describe, parse_code

Gate = Callable[[], None]  # returns when all may start
Work = Callable[[Gate], Any]  # its result must go into JSON


PR_SET_PDEATHSIG = 1


class LostError(AgentError):
    """The process gave no answer; says what became of it."""

    code = ErrorCode.MEASUREMENT_FAILED


class Apart:
    """To be made while this process runs one thread of Python. Ends what it started when the block ends."""

    def __init__(self, work: Work, limit_s: float) -> None:
        self._deadline = time.monotonic() + limit_s
        self._limit_s = limit_s
        self._line, theirs = socket.socketpair()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._line.close()
            _be_child(work, theirs, parent)
        theirs.close()
        self._heard = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end()

    def wait_at_gate(self) -> None:
        self._next("ready")

    def let_go(self) -> None:
        with suppress(OSError):  # it is gone: its answer will tell
            self._line.sendall(b"\n")

    def result(self) -> Any:
        return self._next("result")

    def _next(self, wanted: str) -> Any:
        said = self._hear()
        if "error" in said:
            raise LostError(said["error"], code=parse_code(said["code"]))
        return said[wanted]

    def _hear(self) -> dict[str, Any]:
        while b"\n" not in self._heard:
            self._line.settimeout(max(0.001, self._deadline - time.monotonic()))
            try:
                piece = self._line.recv(65536)
            except TimeoutError:
                raise LostError(f"no answer in {self._limit_s:g} s", code=ErrorCode.TIMED_OUT) from None
            except OSError:
                piece = b""
            if not piece:
                raise self._ended()
            self._heard += piece
        first, _, self._heard = self._heard.partition(b"\n")
        said: dict[str, Any] = json.loads(first)
        return said

    def _ended(self) -> LostError:
        """Without an answer."""
        _, how = os.waitpid(self._pid, 0)
        self._pid = 0
        code = os.waitstatus_to_exitcode(how)
        if code < 0:
            return LostError(f"killed by {signal.Signals(-code).name}", code=ErrorCode.KILLED)
        return LostError(f"ended with {code} and no answer", code=ErrorCode.BAD_ANSWER)

    def _end(self) -> None:
        """And all it started: those keep its process group."""
        self._line.close()
        if not self._pid:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, signal.SIGKILL)
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._pid = 0


def alone(work: Work, limit_s: float) -> Any:
    """The result of work that waits for nobody. Raises LostError."""
    with Apart(work, limit_s) as process:
        return process.result()


def _be_child(work: Work, line: socket.socket, parent: int) -> NoReturn:
    os.setpgid(0, 0)  # not a session: Linux shares the processor out between those first, whatever their niceness
    _end_with(parent)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # what a driver prints is not ours
        os.dup2(nothing, stream)

    def say(document: dict[str, Any]) -> None:
        line.sendall(json.dumps(document).encode() + b"\n")

    def gate() -> None:
        say({"ready": True})
        if not line.recv(1):  # the parent is gone
            os._exit(1)

    try:
        document = {"result": work(gate)}
    except MemoryError as error:
        document = {"error": "out of memory", "code": code_of(error)}
    except Exception as error:  # noqa: BLE001 - the study goes on, and somebody must see what happened here
        document = {"error": describe(error), "code": code_of(error)}
    with suppress(OSError):
        say(document)
    os._exit(0)


def _end_with(parent: int) -> None:
    """A driver that hangs does not outlive a study that was ended."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went just before
        os._exit(1)
