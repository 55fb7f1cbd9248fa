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

CHUNK_SIZE = 32 * 1024  # one SSH packet; `Channel.sendall` of a large buffer copies its tail once a packet
INLINE = 1024 * 1024  # half of sshd's receive window: that much is taken without reading what comes back
MAX_STDERR = 16 * 1024 * 1024


class TooMuchOutputError(Exception):
    pass


@dataclass(frozen=True)
class ProcessResult:
    rc: int
    stdout: bytes
    stderr: bytes


class RemoteProcess:
    """A running command: its input, its output as it arrives, its exit code."""

    def __init__(self, transport: Transport, command: bytes, timeout: float) -> None:
        self.transport = transport
        self.channel = transport.open_session(timeout=timeout)
        self._arrived = threading.Event()
        self.channel.in_buffer.set_event(self._arrived)
        self.channel.in_stderr_buffer.set_event(self._arrived)
        self._feed_error: Exception | None = None
        self._execute(command)

    def feed_or_abort(self, chunks: Iterable[bytes], timeout: float) -> None:
        """Run in a thread: an error while producing the input ends the command and is raised by `exit_code`."""
        try:
            self.feed(chunks, timeout)
        except Exception as error:  # noqa: BLE001  (whatever it is, the caller's thread raises it)
            self._feed_error = error
            self.close()

    def feed(self, chunks: Iterable[bytes], timeout: float) -> None:
        """Send standard input and close it. It is no error if the command exits without reading everything, or if the
        phone does not take it within `timeout` seconds in all: reading will report that."""
        deadline = time.monotonic() + timeout
        for chunk in _split(chunks):
            if not self._send(chunk, deadline):
                return
        self.channel.shutdown_write()

    def read(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        """New data on stdout and stderr; None when both have ended. Raises TimeoutError."""
        while True:
            ended = self.channel.eof_received or self.channel.closed  # checked first: data arrives before its end
            if any(arrived := self._drain()):
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
        """A failing transport closes its channels before it becomes inactive."""
        self.transport.join(0.5)
        return not self.transport.is_active()

    def _execute(self, command: bytes) -> None:
        """`Channel.exec_command` without waiting for the reply, because that wait has no time-out.

        A refusal closes the channel and shows up as a missing exit code.
        """
        request = Message()
        request.add_byte(cMSG_CHANNEL_REQUEST)
        request.add_int(self.channel.remote_chanid)
        request.add_string("exec")
        request.add_boolean(b=True)
        request.add_string(command)
        self.transport._send_user_message(request)  # type: ignore[attr-defined]  # noqa: SLF001

    def _send(self, chunk: bytes, deadline: float) -> bool:
        """Not `sendall`, whose time-out starts anew with every byte that the phone takes."""
        while chunk:
            self.channel.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                chunk = chunk[self.channel.send(chunk) :]
            except OSError:  # closed by the peer, or timed out
                return False
        return True

    def _drain(self) -> tuple[bytes, bytes]:
        # Read everything available: a phone may ignore the flow-control window.
        out, err = self.channel.in_buffer, self.channel.in_stderr_buffer
        return (
            self.channel.recv(max(1, len(out))) if self.channel.recv_ready() else b"",
            self.channel.recv_stderr(max(1, len(err))) if self.channel.recv_stderr_ready() else b"",
        )


def run_process(process: RemoteProcess, stdin: Iterable[bytes] | bytes, timeout: float, limit: int) -> ProcessResult:
    """Run to completion. Raises TimeoutError, TooMuchOutputError, or a paramiko error if the connection is lost."""
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
        return ProcessResult(rc, bytes(stdout), bytes(stderr))
    finally:
        process.close()


def _feed(process: RemoteProcess, stdin: Iterable[bytes] | bytes, timeout: float) -> None:
    """Send small input directly; send long input in a thread while output is read, to avoid a deadlock."""
    if isinstance(stdin, bytes) and len(stdin) <= INLINE:
        process.feed([stdin], timeout)
        return
    chunks = [stdin] if isinstance(stdin, bytes) else stdin
    threading.Thread(target=process.feed_or_abort, args=(chunks, timeout), daemon=True).start()


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), CHUNK_SIZE):
            yield bytes(view[start : start + CHUNK_SIZE])
