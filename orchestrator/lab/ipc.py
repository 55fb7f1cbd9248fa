"""IPC between lab processes: one JSON object per packet over Unix sockets, with passed file descriptors."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOCKET_NAME = "daemon.sock"
_MAX_PACKET_BYTES = 1 << 20
_MAX_FILES = 4


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    socket.send_fds(channel, [json.dumps(message).encode()], list(files))


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the next message and the file descriptors passed with it. Raise EOFError if the peer is gone."""
    data, files, _, _ = socket.recv_fds(channel, _MAX_PACKET_BYTES, _MAX_FILES)
    for file in files:  # recv_fds ignores MSG_CMSG_CLOEXEC: github.com/python/cpython/issues/107898
        os.set_inheritable(file, False)  # noqa: FBT003 (takes no keyword)
    if not data:
        raise EOFError
    message = json.loads(data)
    if not isinstance(message, dict):
        raise TypeError("a lab message must be a JSON object")
    return message, files


def serve(lab_dir: Path) -> socket.socket:
    """Create the daemon's listening socket. Only the user who owns the lab can connect to it."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _short_path(lab_dir) as directory:
        server.bind(f"{directory}/{SOCKET_NAME}")
    (lab_dir / SOCKET_NAME).chmod(0o600)
    server.listen(128)
    return server


def connect(lab_dir: Path) -> socket.socket:
    """Connect to the daemon of the lab in `lab_dir`."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _short_path(lab_dir) as directory:
            channel.connect(f"{directory}/{SOCKET_NAME}")
    except BaseException:
        channel.close()
        raise
    return channel


@contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """A short alias for a directory, because the path of a Unix socket is limited to 108 bytes."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
