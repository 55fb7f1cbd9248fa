"""Read the output of a long-running command line by line."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from orchestrator.errors import PhoneError
from orchestrator.fleet.errors import Unreachable
from orchestrator.fleet.process import RemoteProcess
from orchestrator.fleet.result import Phase
from phone_agent.contract.errors import ErrorCode

MAX_LINE = 1024 * 1024
STDERR_CHUNKS = 16  # the last chunks, for the error message if the command fails


class Stream:
    """Iterate for lines (bytes, without the newline); `rc` is set when the output has ended.

    A lost connection raises Unreachable. A phone that sends no complete line for `silence` seconds, or is not done
    after `timeout` seconds, raises PhoneError: single bytes now and then do not hold a stream open. Ctrl-C works.
    """

    def __init__(self, process: RemoteProcess, silence: float, timeout: float) -> None:
        self._process = process
        self._silence, self._timeout = silence, timeout
        self._line_at = started = time.monotonic()
        self._deadline = started + timeout
        self._errors: deque[bytes] = deque(maxlen=STDERR_CHUNKS)
        self._closed = False
        self.rc: int | None = None

    @property
    def stderr(self) -> str:
        """The end of the standard error output."""
        return b"".join(self._errors).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        while (chunk := self._next_chunk()) is not None:
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            self._line_at = time.monotonic() if lines else self._line_at  # after the caller has processed them
            if len(rest) > MAX_LINE:
                self.close()
                raise PhoneError(
                    f"sent a line longer than {MAX_LINE} bytes", code=ErrorCode.TOO_MUCH_OUTPUT, phase=Phase.EXEC
                )
        if rest:
            yield rest

    def close(self) -> None:
        """Close the stream; may be called from another thread to end the iteration."""
        self._closed = True
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _next_chunk(self) -> bytes | None:
        try:
            arrived = self._process.read(self._time_left())
            if arrived is None and not self._closed:
                self.rc = self._process.exit_code(self._time_left())
        except TimeoutError:
            self.close()
            late = time.monotonic() >= self._deadline
            message = f"not done after {self._timeout:g} s" if late else f"no output for {self._silence:g} s"
            raise PhoneError(message, code=ErrorCode.TIMED_OUT, phase=Phase.EXEC) from None
        except EOFError:
            raise Unreachable("connection lost", code=ErrorCode.CONNECTION_LOST, phase=Phase.EXEC) from None
        if arrived is None:
            return None
        if arrived[1]:
            self._errors.append(arrived[1][-MAX_LINE:])
        return arrived[0]

    def _time_left(self) -> float:
        """Raises TimeoutError if there is none, even while data keeps arriving."""
        left = min(self._line_at + self._silence, self._deadline) - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left
