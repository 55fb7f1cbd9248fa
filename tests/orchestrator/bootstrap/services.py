"""Services of adbd: shell, file transfer, port forwarding."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from tests.orchestrator.bootstrap.fake_adbd import Stream, Transport, pump

STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = 0, 1, 2, 3, 4


def shell(stream: Stream, argv: list[str], environment: dict[str, str]) -> None:
    """Shell protocol v2: packets of type (1 byte), length (4 bytes) and data."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    threading.Thread(target=_feed, args=(stream, process), daemon=True).start()
    lock = threading.Lock()

    def copy(kind: int, read: Callable[[int], bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := read(65536):
                with lock:
                    stream.write(struct.pack("<BI", kind, len(data)) + data)

    assert process.stdout
    assert process.stderr
    errors = threading.Thread(target=copy, args=(STDERR, process.stderr.read1), daemon=True)  # type: ignore[attr-defined]
    errors.start()
    copy(STDOUT, process.stdout.read1)  # type: ignore[attr-defined]
    errors.join()
    code = process.wait()
    process.stdout.close()
    process.stderr.close()
    with contextlib.suppress(OSError):
        stream.write(struct.pack("<BIB", EXIT, 1, code & 0xFF))


def _feed(stream: Stream, process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    with contextlib.suppress(OSError), process.stdin:
        while head := stream.read(5):
            kind, length = struct.unpack("<BI", head)
            data = stream.read(length)
            if kind == CLOSE_STDIN:
                return
            process.stdin.write(data)
            process.stdin.flush()


def sync(stream: Stream, root: Path) -> None:
    """File transfer, as `adb push` uses it."""
    while head := stream.read(8):
        kind, length = head[:4], struct.unpack("<I", head[4:])[0]
        if kind == b"QUIT":
            return
        path = stream.read(length).decode()
        if kind == b"STAT":
            stream.write(b"STAT" + struct.pack("<III", 0, 0, 0))
        elif kind in {b"STA2", b"LST2"}:
            stream.write(kind + struct.pack("<IQQIIIIQqqq", 2, *[0] * 10))  # no such file
        elif kind == b"SEND":
            _receive(stream, root / path.rpartition(",")[0].lstrip("/"))
        else:
            raise AssertionError(f"unknown sync request {kind!r}")


def _receive(stream: Stream, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        while True:
            head = stream.read(8)
            kind, length = head[:4], struct.unpack("<I", head[4:])[0]
            if kind == b"DONE":  # its length field is the modification time
                break
            out.write(stream.read(length))
    stream.write(b"OKAY" + struct.pack("<I", 0))


def connect(stream: Stream, address: str, port: int) -> None:
    """`adb forward`: the computer connects to a port of the phone."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), 5) as sock:
        sock.settimeout(None)
        pump(stream, sock)


class Reverse:
    """`adb reverse`: ports of the phone that are forwarded to the computer."""

    def __init__(self, address: str) -> None:
        self._address = address  # loopback address of the phone
        self._listeners: dict[str, socket.socket] = {}

    def command(self, stream: Stream, line: str) -> None:
        verb, _, rest = line.partition(":")
        if verb == "forward":
            device, host = rest.removeprefix("norebind:").split(";")
            self._listen(stream.transport, device, host)
        elif verb == "killforward":
            self._listeners.pop(rest).close()
        elif verb == "killforward-all":
            self.close()
        stream.write(b"OKAY")

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    @property
    def open_ports(self) -> list[str]:
        return list(self._listeners)

    def _listen(self, transport: Transport, device: str, host: str) -> None:
        listener = socket.create_server((self._address, int(device.removeprefix("tcp:"))))
        self._listeners[device] = listener
        threading.Thread(target=self._accept, args=(listener, transport, host), daemon=True).start()

    @staticmethod
    def _accept(listener: socket.socket, transport: Transport, host: str) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                stream = transport.open(host)
                threading.Thread(target=pump, args=(stream, sock), daemon=True).start()
