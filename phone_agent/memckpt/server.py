"""The in-memory checkpoint server: a small process that holds a run's training state on a phone and never reads it.

It listens on a Unix socket in the run's directory and answers JSON lines from processes of the same user:

    {"request": "open", "signature": …, "size": …}   sends its memory as a file descriptor; reallocates it if the
                                                     signature differs
    {"request": "read"}                              sends its memory as it is, and the signature
    {"request": "status"}                            which steps it holds
    {"request": "stop"}                              frees the memory and exits
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import select
import socket
import time
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.memckpt import header
from phone_agent.memckpt.memfd import Memory, allocate

IDLE_S = 24 * 3600.0  # without a connection; after that no rank is expected to come back
MAX_LINE = 65536


def serve(run: Path, idle_s: float = IDLE_S) -> bool:
    """Serve until stopped or idle for too long. False: another server already holds this run's state."""
    with (run / layout.MEMCKPT_LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        with listen(run) as listener:
            CheckpointServer(run, listener).serve(idle_s)
        (run / layout.MEMCKPT_SOCKET).unlink(missing_ok=True)
    return True


def listen(run: Path) -> socket.socket:
    (run / layout.MEMCKPT_SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(run, os.O_RDONLY)
    try:
        listener.bind(short_path(directory))
    finally:
        os.close(directory)
    (run / layout.MEMCKPT_SOCKET).chmod(0o600)  # before listening; a umask would affect all threads
    listener.listen()
    return listener


def short_path(directory: int) -> str:
    """Through the directory's descriptor: the path of a Unix socket is limited to about 100 characters."""
    return f"/proc/self/fd/{directory}/{layout.MEMCKPT_SOCKET}"


class CheckpointServer:
    def __init__(self, run: Path, listener: socket.socket) -> None:
        self._run, self._listener = run, listener
        self._memory: Memory | None = None
        self._signature: Any = None
        self._clients: list[socket.socket] = []
        self._stopped = False

    def serve(self, idle_s: float) -> None:
        last_active = time.monotonic()
        while not self._stopped:
            ready, _, _ = select.select([self._listener, *self._clients], [], [], min(60.0, idle_s))
            for each in ready:
                if each is self._listener:
                    self._clients.append(self._listener.accept()[0])
                else:
                    self._handle(each)
            if self._clients:
                last_active = time.monotonic()
            run_removed = not (self._run / layout.MEMCKPT_SOCKET).exists()
            self._stopped = self._stopped or run_removed or time.monotonic() - last_active > idle_s
        for client in self._clients:
            client.close()
        self._free()

    def _handle(self, client: socket.socket) -> None:
        """One recv is one line: lines are short, and a client waits for each reply."""
        try:
            self._reply(client, json.loads(client.recv(MAX_LINE)))
        except (OSError, ValueError, KeyError, TypeError):  # disconnected, or not a valid request
            self._clients.remove(client)
            client.close()

    def _reply(self, client: socket.socket, message: dict[str, Any]) -> None:
        request = message["request"]
        descriptors: list[int] = []
        if request == "open":
            descriptors = [self._open(message["signature"], int(message["size"])).descriptor]
        reply = self._status()
        if request == "read" and self._memory is not None:
            descriptors, reply["signature"] = [self._memory.descriptor], self._signature
        self._stopped = self._stopped or request == "stop"
        socket.send_fds(client, [json.dumps(reply).encode() + b"\n"], descriptors)

    def _status(self) -> dict[str, Any]:
        memory = self._memory
        size, allocated, kind = (memory.size, memory.allocated_bytes, memory.kind) if memory else (0, 0, None)
        return {
            "pid": os.getpid(),
            "bytes": size,
            "allocated_bytes": allocated,
            "kind": kind,
            "held_steps": self._held_steps(),
        }

    def _open(self, signature: Any, size: int) -> Memory:
        if self._memory is None or self._signature != signature or self._memory.size != size:
            self._free()
            self._memory, self._signature = allocate(size, f"memckpt-{self._run.name}"), signature
        return self._memory

    def _free(self) -> None:
        if self._memory is not None:
            os.close(self._memory.descriptor)
            self._memory = None

    def _held_steps(self) -> list[CommittedStep]:
        if self._memory is None:
            return []
        with mmap.mmap(self._memory.descriptor, header.SIZE) as memory:
            return header.committed_steps(header.read(memory))
