"""Run commands and copy files on one phone over one SSH transport."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import fabric
from paramiko import SSHException, Transport

from orchestrator.errors import PhoneError
from orchestrator.fleet import copy
from orchestrator.fleet.errors import Unreachable
from orchestrator.fleet.process import ProcessResult, RemoteProcess, TooMuchOutputError, run_process
from orchestrator.fleet.result import CommandResult, Phase, command_error, exit_error_code, shorten
from orchestrator.fleet.shell import command_line
from orchestrator.fleet.stream import Stream
from orchestrator.fleet.timeouts import Timeouts
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import last_lines

MAX_OUTPUT = 16 * 1024 * 1024
COPY_TIMEOUT = 3600.0  # a dead link is detected much earlier; this limits a phone that stops reading


class PhoneConnection:
    """Commands start in Termux's $HOME; remote paths are relative to it."""

    def __init__(self, phone: Phone, connection: fabric.Connection, timeouts: Timeouts) -> None:
        self.phone = phone
        self._connection = connection
        self._timeouts = timeouts

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[bytes] | bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        check: bool = False,
    ) -> CommandResult:
        """Run a command to completion. A command that times out may still be running on the phone."""
        started = time.monotonic()
        with self._error_context(shorten(argv), Phase.EXEC):
            limit = timeout * self._timeouts.time_scale
            done = self._run_process(command_line(argv, env), stdin or b"", limit, MAX_OUTPUT)
        result = CommandResult(tuple(argv), done.rc, _text(done.stdout), _text(done.stderr), time.monotonic() - started)
        if check and not result.ok:
            raise command_error(result)
        return result

    def script(self, text: str, *args: str, timeout: float = 60.0, check: bool = False) -> CommandResult:
        """Run a fixed script in bash. Data is passed as arguments only; standard input is empty."""
        # In braces, bash reads the whole script before it runs anything: half a script never runs.
        body = "{\n" + text + "\n} </dev/null\n"
        return self.run(["bash", "-s", "--", *args], stdin=body.encode(), timeout=timeout, check=check)

    def open_stream(
        self, argv: Sequence[str], *, silence: float, timeout: float, env: Mapping[str, str] | None = None
    ) -> Stream:
        """`silence`: most seconds between two lines; `timeout`: most seconds in all, which may be infinite."""
        with self._error_context(shorten(argv), Phase.EXEC):
            process = RemoteProcess(self._transport, command_line(argv, env), self._timeouts.channel)
            process.feed([], self._timeouts.channel)
        scale = self._timeouts.time_scale
        return Stream(process, silence * scale, timeout * scale)

    def put(self, data: bytes, remote: PurePosixPath, mode: int = 0o600) -> None:
        """Write a small file atomically; create its directory."""
        self._copy(f"writing {remote}", copy.put_command(remote, len(data), mode), data)

    def put_file(self, local: Path, remote: PurePosixPath) -> None:
        """Copy a file atomically with its mode; create its directory."""
        status = local.stat()
        command = copy.put_command(remote, status.st_size, stat.S_IMODE(status.st_mode))
        self._copy(f"copying {local.name} to {remote}", command, copy.content(local, status.st_size))

    def put_tree(self, local: Path, remote: PurePosixPath) -> None:
        """Replace the directory `remote` with a copy of `local`: one tar stream, symlinks copied as symlinks."""
        self._copy(f"copying {local.name}/ to {remote}", copy.tree_command(remote), copy.archive(local))

    def get(self, remote: PurePosixPath, *, limit: int) -> bytes:
        """Read a file of at most `limit` bytes."""
        return self._copy(f"reading {remote}", ["cat", "--", str(remote)], b"", limit).stdout

    @property
    def alive(self) -> bool:
        return bool(self._connection.is_connected)

    def abort(self) -> None:
        """Abort all running work immediately; call `close` afterwards to free resources."""
        if transport := self._connection.transport:
            transport.abort()

    def close(self) -> None:
        self.abort()
        self._connection.close()

    @property
    def _transport(self) -> Transport:
        transport: Transport = self._connection.transport
        return transport

    def _copy(
        self, what: str, argv: Sequence[str], stdin: Iterable[bytes] | bytes, limit: int = MAX_OUTPUT
    ) -> ProcessResult:
        with self._error_context(what, Phase.COPY):
            done = self._run_process(command_line(argv), stdin, COPY_TIMEOUT, limit)
        if done.rc != 0:
            output = last_lines(_text(done.stderr))
            raise PhoneError(f"{what}: {output or 'killed'}", code=exit_error_code(done.rc, output), phase=Phase.COPY)
        return done

    def _run_process(self, line: bytes, stdin: Iterable[bytes] | bytes, timeout: float, limit: int) -> ProcessResult:
        try:
            return run_process(RemoteProcess(self._transport, line, self._timeouts.channel), stdin, timeout, limit)
        except TimeoutError:
            raise PhoneError(f"not done after {timeout:g} s", code=ErrorCode.TIMED_OUT) from None
        except TooMuchOutputError:
            raise PhoneError(f"more than {limit} bytes of output", code=ErrorCode.TOO_MUCH_OUTPUT) from None

    @contextmanager
    def _error_context(self, what: str, phase: Phase) -> Iterator[None]:
        """Add what was being done to errors; distinguish a lost connection from a failed command."""
        try:
            yield
        except PhoneError as error:
            raise PhoneError(f"{what}: {error.message}", code=error.code, phase=phase) from error
        except (SSHException, EOFError, OSError) as error:
            if self.alive and not isinstance(error, EOFError):
                raise PhoneError(f"{what}: {error}", code=ErrorCode.COMMAND_FAILED, phase=phase) from error
            raise self._lost(what, phase) from error

    def _lost(self, what: str, phase: Phase) -> Unreachable:
        cable = f"check power and cable at {self.phone.where}"
        message = f"{what}: connection lost"
        return Unreachable(message, code=ErrorCode.CONNECTION_LOST, phase=phase, remedy=cable)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
