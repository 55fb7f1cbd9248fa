"""One command on one paramiko channel.

Why not `fabric.Connection.run`: it starts threads for each command and polls. Waiting 5 s for a command on 64 phones
takes it 2.1 s of CPU, and this 0.07 s; a trivial command twice the CPU (benchmarks/fleet.py races both). So Fabric
makes and holds the connection, and commands run on channels of its transport, woken by an event when something
arrives.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paramiko import Message, Transport
from paramiko.common import cMSG_CHANNEL_REQUEST

from orchestrator.fleet.result import NO_EXIT_CODE

PIECE = 32 * 1024  # one SSH packet; `Channel.sendall` of a large buffer copies its tail once a packet
INLINE = 1024 * 1024  # half of sshd's receive window: that much is taken without reading what comes back
MAX_STDERR = 16 * 1024 * 1024


class TooMuchOutputError(Exception):
    pass


@dataclass(frozen=True)
class Finished:
    rc: int
    stdout: bytes
    stderr: bytes


class RemoteProcess:
    """What a command says, as it says it."""

    def __init__(self, transport: Transport, command: bytes, timeout: float) -> None:
        self.transport = transport
        self.channel = transport.open_session(timeout=timeout)
        self._arrived = threading.Event()
        self.channel.in_buffer.set_event(self._arrived)
        self.channel.in_stderr_buffer.set_event(self._arrived)
        self._feed_error: Exception | None = None
        self._execute(command)

    def feed_or_abort(self, chunks: Iterable[bytes], timeout: float) -> None:
        """For a thread: an error while making the input ends the command, and is raised by `exit_code`."""
        try:
            self.feed(chunks, timeout)
        except Exception as error:  # noqa: BLE001  (whatever it is, the caller's thread raises it)
            self._feed_error = error
            self.close()

    def feed(self, chunks: Iterable[bytes], timeout: float | None) -> None:
        """Sends standard input and ends it. A command that exits without reading it all is no error here."""
        self.channel.settimeout(timeout)
        for piece in _pieces(chunks):
            if not self._send(piece):
                return
        self.channel.shutdown_write()

    def read(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        """What arrived on stdout and stderr since last time; None when both have ended. Raises TimeoutError."""
        while True:
            ended = self.channel.eof_received or self.channel.closed  # looked at first: data precedes its end
            if any(arrived := self._take()):
                return arrived
            if ended:
                return None
            if not self._arrived.wait(timeout):
                raise TimeoutError

    def exit_code(self, timeout: float | None) -> int:
        if self._feed_error:
            raise self._feed_error
        if not self.channel.status_event.wait(timeout):
            raise TimeoutError
        if self.channel.exit_status == NO_EXIT_CODE and self._transport_ends():
            raise EOFError("connection lost")
        return self.channel.exit_status

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self.channel.close()

    def _transport_ends(self) -> bool:
        """A dying transport closes its channels first and calls itself inactive afterwards."""
        self.transport.join(0.5)
        return not self.transport.is_active()

    def _execute(self, command: bytes) -> None:
        """`Channel.exec_command` without its wait for the answer, which has no time limit.

        A refusal closes the channel, and is seen as an end without an exit code.
        """
        request = Message()
        request.add_byte(cMSG_CHANNEL_REQUEST)
        request.add_int(self.channel.remote_chanid)
        request.add_string("exec")
        request.add_boolean(b=True)
        request.add_string(command)
        self.transport._send_user_message(request)  # type: ignore[attr-defined]  # noqa: SLF001

    def _send(self, piece: bytes) -> bool:
        try:
            self.channel.sendall(piece)
        except OSError:  # closed by the other side, or nothing taken in time: what is read will tell
            return False
        return True

    def _take(self) -> tuple[bytes, bytes]:
        # Everything there is: a phone may ignore the flow-control window, but not outrun this.
        out, err = self.channel.in_buffer, self.channel.in_stderr_buffer
        return (
            self.channel.recv(max(1, len(out))) if self.channel.recv_ready() else b"",
            self.channel.recv_stderr(max(1, len(err))) if self.channel.recv_stderr_ready() else b"",
        )


def finish(process: RemoteProcess, stdin: Iterable[bytes] | bytes, timeout: float, limit: int) -> Finished:
    """Runs to the end. Raises TimeoutError, TooMuchOutputError, or what paramiko raises on a lost connection."""
    deadline = time.monotonic() + timeout
    try:
        _feed(process, stdin, timeout)
        stdout, stderr = bytearray(), bytearray()
        while arrived := process.read(max(0.0, deadline - time.monotonic())):
            stdout += arrived[0]
            stderr += arrived[1]
            if len(stdout) > limit or len(stderr) > MAX_STDERR:
                raise TooMuchOutputError
        rc = process.exit_code(max(0.0, deadline - time.monotonic()))
        return Finished(rc, bytes(stdout), bytes(stderr))
    finally:
        process.close()


def _feed(process: RemoteProcess, stdin: Iterable[bytes] | bytes, timeout: float) -> None:
    """Small input goes out at once; a long one while the output is read, or both sides could wait for ever."""
    if isinstance(stdin, bytes) and len(stdin) <= INLINE:
        process.feed([stdin], timeout)
        return
    chunks = [stdin] if isinstance(stdin, bytes) else stdin
    threading.Thread(target=process.feed_or_abort, args=(chunks, timeout), daemon=True).start()


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), PIECE):
            yield bytes(view[start : start + PIECE])
