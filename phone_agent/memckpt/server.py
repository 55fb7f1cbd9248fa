"""The process that holds a run's training state on a phone. Small: it holds memory for others, and never reads it.

It listens on a socket in the run's directory, for JSON lines from processes of the same user:

    {"verb": "open", "signature": …, "size": …}   its memory, as a descriptor; new and empty if the signature is another
    {"verb": "held"}                              which steps are in it
    {"verb": "end"}                               frees it
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import select
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.memckpt import header
from phone_agent.memckpt.memfd import Memory, allocate

IDLE_S = 24 * 3600.0  # without a rank, until nobody is expected to come back
LONGEST_LINE = 65536


def keep(run: Path, idle_s: float = IDLE_S) -> bool:
    """Until told to end, or idle for long. False: somebody holds this run's state already."""
    with (run / layout.MEMCKPT_LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        with listening(run) as server:
            _Keeper(run, server).serve(idle_s)
        (run / layout.MEMCKPT_SOCKET).unlink(missing_ok=True)
    return True


def listening(run: Path) -> socket.socket:
    """A socket's path may have a hundred characters: it is named through its directory's descriptor."""
    (run / layout.MEMCKPT_SOCKET).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(run, os.O_RDONLY)
    try:
        server.bind(short_path(directory))
    finally:
        os.close(directory)
    (run / layout.MEMCKPT_SOCKET).chmod(0o600)  # before anybody can connect; a umask would be all threads'
    server.listen()
    return server


def short_path(directory: int) -> str:
    return f"/proc/self/fd/{directory}/{layout.MEMCKPT_SOCKET}"


class _Keeper:
    def __init__(self, run: Path, server: socket.socket) -> None:
        self._run, self._server = run, server
        self._memory: Memory | None = None
        self._signature: Any = None
        self._clients: list[socket.socket] = []
        self._over = False

    def serve(self, idle_s: float) -> None:
        last = time.monotonic()
        while not self._over:
            ready, _, _ = select.select([self._server, *self._clients], [], [], min(60.0, idle_s))
            for each in ready:
                if each is self._server:
                    self._clients.append(self._server.accept()[0])
                else:
                    self._hear(each)
            if self._clients:
                last = time.monotonic()
            gone = not (self._run / layout.MEMCKPT_SOCKET).exists()  # somebody removed the run
            self._over = self._over or gone or time.monotonic() - last > idle_s
        for client in self._clients:
            client.close()
        self._free()

    def _hear(self, client: socket.socket) -> None:
        """One line is one packet here: they are short, and each waits for its answer."""
        try:
            self._answer(client, json.loads(client.recv(LONGEST_LINE)))
        except (OSError, ValueError, KeyError, TypeError):  # nothing more comes, or nothing that makes sense
            self._clients.remove(client)
            client.close()

    def _answer(self, client: socket.socket, request: dict[str, Any]) -> None:
        verb = request["verb"]
        descriptors: list[int] = []
        if verb == "open":
            descriptors = [self._open(request["signature"], int(request["size"])).descriptor]
        self._over = self._over or verb == "end"
        socket.send_fds(client, [json.dumps(self._report()).encode() + b"\n"], descriptors)

    def _report(self) -> dict[str, Any]:
        memory = self._memory
        size, taken, kind = (memory.size, memory.taken, memory.kind) if memory else (0, 0, None)
        return {"pid": os.getpid(), "bytes": size, "taken": taken, "kind": kind, "held": self._held()}

    def _open(self, signature: Any, size: int) -> Memory:
        if self._memory is None or self._signature != signature or self._memory.size != size:
            self._free()
            self._memory, self._signature = allocate(size, f"keep-{self._run.name}"), signature
        return self._memory

    def _free(self) -> None:
        if self._memory is not None:
            os.close(self._memory.descriptor)
            self._memory = None

    def _held(self) -> list[header.Mark]:
        if self._memory is None:
            return []
        with mmap.mmap(self._memory.descriptor, header.SIZE) as memory:
            return header.held(header.read(memory))


def forget_others(run: Path) -> None:
    """A phone takes part in one run at a time: what others left in its memory makes room."""
    from phone_agent.memckpt.client import ask

    for path in run.parent.glob(f"*/{layout.MEMCKPT_SOCKET}"):
        if path.parent != run:
            with suppress(OSError):
                ask(path.parent, "end")
