"""One phone at the other end of one SSH transport."""

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
from orchestrator.fleet.process import Finished, RemoteProcess, TooMuchOutputError, finish
from orchestrator.fleet.quote import last_lines, printable
from orchestrator.fleet.result import CommandResult, Phase, ending, failed, short
from orchestrator.fleet.shell import command_line
from orchestrator.fleet.stream import Stream
from orchestrator.fleet.timeouts import Timeouts
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode

MAX_OUTPUT = 16 * 1024 * 1024
COPY_TIMEOUT = 3600.0  # a dead link is noticed long before; this is for a phone that takes nothing


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
        """Runs a command to its end. A command that times out may still be running on the phone."""
        started = time.monotonic()
        with self._told_as(short(argv), Phase.EXEC):
            limit = timeout * self._timeouts.slowness
            done = self._finish(command_line(argv, env), stdin or b"", limit, MAX_OUTPUT)
        result = CommandResult(tuple(argv), done.rc, _text(done.stdout), _text(done.stderr), time.monotonic() - started)
        if check and not result.ok:
            raise failed(result)
        return result

    def script(self, text: str, *args: str, timeout: float = 60.0, check: bool = False) -> CommandResult:
        """Runs fixed text in bash; data comes only as arguments. Its standard input is empty."""
        # In braces, bash reads the whole text before it runs any of it: half a script never runs.
        body = "{\n" + text + "\n} </dev/null\n"
        return self.run(["bash", "-s", "--", *args], stdin=body.encode(), timeout=timeout, check=check)

    def open_stream(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, silence: float | None = None
    ) -> Stream:
        with self._told_as(short(argv), Phase.EXEC):
            process = RemoteProcess(self._transport, command_line(argv, env), self._timeouts.channel)
            process.feed([], self._timeouts.channel)
        return Stream(process, silence and silence * self._timeouts.slowness)

    def put(self, data: bytes, remote: PurePosixPath, mode: int = 0o600) -> None:
        """Writes a small file: whole or not at all. Its directory is made."""
        self._copy(f"writing {remote}", copy.put_command(remote, len(data), mode), data)

    def put_file(self, local: Path, remote: PurePosixPath) -> None:
        """Copies a file with its mode: whole or not at all. Its directory is made."""
        status = local.stat()
        command = copy.put_command(remote, status.st_size, stat.S_IMODE(status.st_mode))
        self._copy(f"copying {local.name} to {remote}", command, copy.content(local, status.st_size))

    def put_tree(self, local: Path, remote: PurePosixPath) -> None:
        """Replaces the directory `remote` by a copy of `local`: one tar stream, links copied as links."""
        self._copy(f"copying {local.name}/ to {remote}", copy.tree_command(remote), copy.archive(local))

    def get(self, remote: PurePosixPath, *, limit: int) -> bytes:
        """A file's content; more than `limit` bytes is an error."""
        return self._copy(f"reading {remote}", ["cat", "--", str(remote)], b"", limit).stdout

    @property
    def alive(self) -> bool:
        return bool(self._connection.is_connected)

    def hang_up(self) -> None:
        """Ends everything that is under way, at once; `close` afterwards frees what is left."""
        if transport := self._connection.transport:
            transport.hang_up()

    def close(self) -> None:
        self.hang_up()
        self._connection.close()

    @property
    def _transport(self) -> Transport:
        transport: Transport = self._connection.transport
        return transport

    def _copy(
        self, what: str, argv: Sequence[str], stdin: Iterable[bytes] | bytes, limit: int = MAX_OUTPUT
    ) -> Finished:
        with self._told_as(what, Phase.COPY):
            done = self._finish(command_line(argv), stdin, COPY_TIMEOUT, limit)
        if done.rc != 0:
            said = last_lines(_text(done.stderr)) or "it was killed"
            raise PhoneError(f"{what}: {said}", code=ending(done.rc), phase=Phase.COPY)
        return done

    def _finish(self, line: bytes, stdin: Iterable[bytes] | bytes, timeout: float, limit: int) -> Finished:
        try:
            return finish(RemoteProcess(self._transport, line, self._timeouts.channel), stdin, timeout, limit)
        except TimeoutError:
            raise PhoneError(f"not done after {timeout:g} s", code=ErrorCode.TIMED_OUT) from None
        except TooMuchOutputError:
            raise PhoneError(f"more than {limit} bytes of output", code=ErrorCode.TOO_MUCH_OUTPUT) from None

    @contextmanager
    def _told_as(self, what: str, phase: Phase) -> Iterator[None]:
        """Says what was being done, and tells a lost connection from an error on a good one."""
        try:
            yield
        except PhoneError as error:
            raise PhoneError(f"{what}: {error.message}", code=error.code, phase=phase) from error
        except (SSHException, EOFError, OSError) as error:
            if self.alive and not isinstance(error, EOFError):
                raise PhoneError(printable(f"{what}: {error}"), code=ErrorCode.COMMAND_FAILED, phase=phase) from error
            raise self._lost(what, phase) from error

    def _lost(self, what: str, phase: Phase) -> Unreachable:
        cable = f"check power and cable at {self.phone.where}"
        message = f"{what}: the connection was lost"
        return Unreachable(message, code=ErrorCode.CONNECTION_LOST, phase=phase, remedy=cable)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
