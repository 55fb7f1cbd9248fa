"""How lab processes talk: one JSON object a packet on Unix sockets, open files passed along."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOCKET_NAME = "anchor.sock"
_LARGEST_PACKET = 1 << 20
_MOST_FILES = 4


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    socket.send_fds(channel, [json.dumps(message).encode()], list(files))


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and the files that came with it. EOFError when the other side is gone."""
    data, files, _, _ = socket.recv_fds(channel, _LARGEST_PACKET, _MOST_FILES)
    for file in files:  # recv_fds ignores MSG_CMSG_CLOEXEC: github.com/python/cpython/issues/107898
        os.set_inheritable(file, False)  # noqa: FBT003 (takes no keyword)
    if not data:
        raise EOFError
    message = json.loads(data)
    if not isinstance(message, dict):
        raise TypeError("a lab message is a JSON object")
    return message, files


def serve(lab_dir: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _short(lab_dir) as directory:
        server.bind(f"{directory}/{SOCKET_NAME}")
    (lab_dir / SOCKET_NAME).chmod(0o600)
    server.listen(128)
    return server


def dial(lab_dir: Path) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _short(lab_dir) as directory:
            channel.connect(f"{directory}/{SOCKET_NAME}")
    except BaseException:
        channel.close()
        raise
    return channel


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """A short name for a directory: a Unix socket's path has to fit into 108 bytes."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
