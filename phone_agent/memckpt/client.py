"""Client of the in-memory checkpoint server, for ranks and for agent commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.memckpt.server import MAX_LINE, short_path

OPEN_TIMEOUT_S = 20.0  # for the server to allocate its memory
TIMEOUT_S = 5.0
MPI_VARIABLES = ("OMPI_", "PMIX_", "ORTE_")  # environment variables that make a process look like a rank


class CheckpointServerError(AgentError):
    """No checkpoint server runs, and none could be started."""

    code = ErrorCode.CHECKPOINT_SERVER_FAILED


class CheckpointClient:
    """A connection to the server. The server does not count as idle while the connection is open."""

    def __init__(self, run: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = connect(run)
        self._socket.settimeout(timeout_s)

    def open(self, signature: Any, size: int) -> tuple[int, str]:
        """A descriptor of the server's memory, and the kind of that memory."""
        self._send({"request": "open", "signature": signature, "size": size})
        line, descriptors, _, _ = socket.recv_fds(self._socket, MAX_LINE, 1)
        if not descriptors:
            raise CheckpointServerError("the in-memory checkpoint server sent no memory", code=ErrorCode.OUT_OF_MEMORY)
        return descriptors[0], json.loads(line)["kind"]

    def read(self) -> tuple[int, Any]:
        """A descriptor of the server's memory as it is, and its signature."""
        self._send({"request": "read"})
        line, descriptors, _, _ = socket.recv_fds(self._socket, MAX_LINE, 1)
        if not descriptors:
            raise CheckpointServerError("this phone holds no training state in memory")
        return descriptors[0], json.loads(line)["signature"]

    def query(self, request: str) -> dict[str, Any]:
        self._send({"request": request})
        reply: dict[str, Any] = json.loads(self._socket.recv(MAX_LINE) or "{}")
        return reply

    def close(self) -> None:
        self._socket.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")


def connect(run: Path) -> socket.socket:
    directory = os.open(run, os.O_RDONLY)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(TIMEOUT_S)
    try:
        client.connect(short_path(directory))
    except BaseException:
        client.close()
        raise
    finally:
        os.close(directory)
    return client


def query(run: Path, request: str) -> dict[str, Any]:
    """Raises OSError if no server listens."""
    client = CheckpointClient(run)
    try:
        return client.query(request)
    finally:
        client.close()


def held_steps(run: Path) -> list[CommittedStep]:
    """The steps held in memory on this phone; none if no server runs."""
    try:
        return [CommittedStep(*each) for each in query(run, "status").get("held_steps", [])]
    except (OSError, ValueError):
        return []


def allocated_bytes(run: Path) -> int:
    """Memory of this phone that the run's checkpoint server already uses."""
    try:
        return int(query(run, "status").get("allocated_bytes", 0))
    except (OSError, ValueError):
        return 0


def stop_server(run: Path) -> bool:
    """False if no server was running."""
    try:
        query(run, "stop")
    except (OSError, ValueError):
        return False
    _wait(lambda: not is_running(run), TIMEOUT_S)
    return True


def ensure_server(run: Path) -> None:
    """Start the server if needed. To be called before MPI starts: a later child would count as part of the job."""
    if is_running(run):
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith(MPI_VARIABLES)}
    with (run / layout.MEMCKPT_LOG).open("ab") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "phone_agent", "memckpt-server", run.name],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that killing the rank's process group does not kill the server
        )
    # No limit while it starts: on a busy phone this takes a while, and the host diagnoses a rank that hangs here.
    while server.poll() is None and not is_running(run):
        time.sleep(0.02)
    server.returncode = 0  # it outlives this process; suppress Popen's warning about that
    # If it has exited, it may have found another one that is about to listen.
    if not _wait(lambda: is_running(run), TIMEOUT_S):
        raise CheckpointServerError(f"cannot start the in-memory checkpoint server: see {run / layout.MEMCKPT_LOG}")


def is_running(run: Path) -> bool:
    try:
        connect(run).close()
    except OSError:
        return False
    return True


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def stop_other_servers(run: Path) -> None:
    """Free the memory that other runs left behind: a phone takes part in one run at a time."""
    for path in run.parent.glob(f"*/{layout.MEMCKPT_SOCKET}"):
        if path.parent != run:
            with suppress(OSError):
                query(path.parent, "stop")
