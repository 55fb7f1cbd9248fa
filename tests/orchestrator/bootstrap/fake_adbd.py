"""The phone side of the adb protocol over TCP, for the real adb client and server.

A message is six little-endian words (command, two arguments, length, checksum, complement of the command) and data. The
phone answers a connection with a token that the computer signs; if it does not know the key, it asks its owner. Then
both sides open streams to named services and acknowledge every packet.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import threading
from queue import SimpleQueue
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA1

CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = (
    int.from_bytes(word.encode(), "little") for word in ("CNXN", "AUTH", "OPEN", "OKAY", "WRTE", "CLSE")
)
TOKEN, SIGNATURE, RSAPUBLICKEY = 1, 2, 3
VERSION = 0x01000001
MAXDATA = 256 * 1024


class Owner(Protocol):
    """The phone behind adbd: its keys, its services and the person who holds it."""

    keys: list[rsa.RSAPublicKey]

    @property
    def banner(self) -> bytes: ...

    def ask(self, key: rsa.RSAPublicKey, gone: threading.Event) -> bool:
        """The authorization dialog on the screen."""
        ...

    def serve(self, service: str, stream: Stream) -> None: ...


class Stream:
    """One of several streams on a connection."""

    def __init__(self, transport: Transport, local: int, remote: int) -> None:
        self.transport = transport
        self.local = local
        self.remote = remote
        self.arrived: SimpleQueue[bytes] = SimpleQueue()
        self._rest = b""
        self._ready = threading.Semaphore(1 if remote else 0)
        self.closed = threading.Event()

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), MAXDATA):
            self._ready.acquire()
            if self.closed.is_set():
                raise BrokenPipeError
            self.transport.send(WRTE, self.local, self.remote, data[at : at + MAXDATA])

    def read(self, count: int) -> bytes:
        """Exactly `count` bytes; fewer only at the end."""
        while len(self._rest) < count:
            packet = self.read_some()
            if not packet:
                break
            self._rest += packet
        data, self._rest = self._rest[:count], self._rest[count:]
        return data

    def read_some(self) -> bytes:
        packet = self.arrived.get()
        if packet and not self.closed.is_set():
            self.transport.send(OKAY, self.local, self.remote)
        return packet

    def acknowledged(self) -> None:
        self._ready.release()

    def end(self) -> None:
        self.closed.set()
        self.arrived.put(b"")
        self._ready.release()

    def close(self) -> None:
        if not self.closed.is_set():
            with contextlib.suppress(OSError):
                self.transport.send(CLSE, self.local, self.remote)
        self.end()


class Transport:
    """One connection of an adb server."""

    def __init__(self, sock: socket.socket, owner: Owner) -> None:
        self._sock = sock
        self._owner = owner
        self._lock = threading.Lock()
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._token = b""
        self.gone = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                self._handle(*self._receive())
        self.abort()

    def abort(self) -> None:
        self.gone.set()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        for stream in list(self._streams.values()):
            stream.end()

    def send(self, command: int, first: int, second: int, data: bytes = b"") -> None:
        head = struct.pack("<6I", command, first, second, len(data), sum(data) & 0xFFFFFFFF, command ^ 0xFFFFFFFF)
        with self._lock:
            self._sock.sendall(head + data)

    def open(self, service: str) -> Stream:
        """Open a stream to the computer, as `adb reverse` does."""
        stream = self._add(0)
        self.send(OPEN, stream.local, 0, service.encode() + b"\0")
        return stream

    def _receive(self) -> tuple[int, int, int, bytes]:
        command, first, second, length, _, magic = struct.unpack("<6I", self._exactly(24))
        assert magic == command ^ 0xFFFFFFFF
        return command, first, second, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            packet = self._sock.recv(count - len(data))
            if not packet:
                raise EOFError
            data += packet
        return data

    def _handle(self, command: int, first: int, second: int, data: bytes) -> None:
        if command == CNXN:
            self._challenge()
        elif command == AUTH:
            self._authenticate(first, data)
        elif command == OPEN:
            self._serve(first, data.rstrip(b"\0").decode())
        elif second in self._streams:
            self._on_stream(command, first, self._streams[second], data)

    def _on_stream(self, command: int, remote: int, stream: Stream, data: bytes) -> None:
        if command == WRTE:
            stream.arrived.put(data)
        elif command == OKAY:
            stream.remote = remote
            stream.acknowledged()
        elif command == CLSE:
            stream.end()

    def _challenge(self) -> None:
        self._token = os.urandom(20)
        self.send(AUTH, TOKEN, 0, self._token)

    def _authenticate(self, kind: int, data: bytes) -> None:
        if kind == SIGNATURE and any(_signed(key, data, self._token) for key in self._owner.keys):
            self._welcome()
        elif kind == SIGNATURE:
            self._challenge()
        elif kind == RSAPUBLICKEY:
            key = android_key(data)
            threading.Thread(target=self._ask, args=(key,), daemon=True).start()

    def _ask(self, key: rsa.RSAPublicKey) -> None:
        if self._owner.ask(key, self.gone):
            with contextlib.suppress(OSError):
                self._welcome()

    def _welcome(self) -> None:
        self.send(CNXN, VERSION, MAXDATA, self._owner.banner)

    def _add(self, remote: int) -> Stream:
        self._last += 1
        stream = self._streams[self._last] = Stream(self, self._last, remote)
        return stream

    def _serve(self, remote: int, service: str) -> None:
        stream = self._add(remote)
        threading.Thread(target=self._serve_stream, args=(service, stream), daemon=True).start()

    def _serve_stream(self, service: str, stream: Stream) -> None:
        with contextlib.suppress(OSError):
            self.send(OKAY, stream.local, stream.remote)
            self._owner.serve(service, stream)
        stream.close()


def android_key(data: bytes) -> rsa.RSAPublicKey:
    """`BASE64 user@host`, containing the length of the modulus, its inverse, the modulus, R squared, the exponent."""
    raw = base64.b64decode(data.split(b" ")[0].rstrip(b"\0"))
    (words,) = struct.unpack_from("<I", raw)
    modulus = int.from_bytes(raw[8 : 8 + 4 * words], "little")
    (exponent,) = struct.unpack_from("<I", raw, 8 + 8 * words)
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _signed(key: rsa.RSAPublicKey, signature: bytes, token: bytes) -> bool:
    """The token takes the place of a SHA-1 digest."""
    try:
        key.verify(signature, token, padding.PKCS1v15(), Prehashed(SHA1()))  # noqa: S303  (what adb does)
    except InvalidSignature:
        return False
    return True


class Listener:
    """The adbd of a phone."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.plugged = True
        self._transports: list[Transport] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def unplug(self) -> None:
        self.plugged = False
        for transport in self._transports:
            transport.abort()

    def plug_in(self) -> None:
        self.plugged = True

    def close(self) -> None:
        self.unplug()
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._socket.accept()
                if not self.plugged:
                    sock.close()
                    continue
                transport = Transport(sock, self._owner)
                self._transports.append(transport)
                threading.Thread(target=transport.run, daemon=True).start()


def pump(stream: Stream, sock: socket.socket) -> None:
    """Copy in both directions between a stream and a socket until either ends."""

    def down() -> None:
        with contextlib.suppress(OSError):
            while packet := stream.read_some():
                sock.sendall(packet)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=down, daemon=True)
    thread.start()
    with contextlib.suppress(OSError):
        while packet := sock.recv(MAXDATA):
            stream.write(packet)
    stream.close()
    sock.close()
