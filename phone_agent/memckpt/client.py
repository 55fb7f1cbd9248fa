"""What a rank, and the agent's verbs, ask of the keeper."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.memckpt.header import Mark
from phone_agent.memckpt.server import LONGEST_LINE, short_path

PATIENCE_S = 20.0
TIMEOUT_S = 5.0
MPI = ("OMPI_", "PMIX_", "ORTE_")  # of the environment: what makes a process look like a rank


class KeeperError(AgentError):
    """There is no keeper, and none could be started."""

    code = ErrorCode.CHECKPOINT_SERVER_FAILED


class Keeper:
    """A connection to it: as long as it lasts, the keeper knows that somebody trains."""

    def __init__(self, run: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = connected(run)
        self._socket.settimeout(timeout_s)

    def open(self, signature: Any, size: int) -> tuple[int, str]:
        """A descriptor of the memory, and of what kind it is."""
        self._say({"verb": "open", "signature": signature, "size": size})
        line, descriptors, _, _ = socket.recv_fds(self._socket, LONGEST_LINE, 1)
        if not descriptors:
            raise KeeperError("whoever holds the training state handed out no memory", code=ErrorCode.OUT_OF_MEMORY)
        return descriptors[0], json.loads(line)["kind"]

    def ask(self, verb: str) -> dict[str, Any]:
        self._say({"verb": verb})
        answer: dict[str, Any] = json.loads(self._socket.recv(LONGEST_LINE) or "{}")
        return answer

    def close(self) -> None:
        self._socket.close()

    def _say(self, request: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(request).encode() + b"\n")


def connected(run: Path) -> socket.socket:
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


def ask(run: Path, verb: str) -> dict[str, Any]:
    """Raises OSError where nobody listens."""
    keeper = Keeper(run)
    try:
        return keeper.ask(verb)
    finally:
        keeper.close()


def held(run: Path) -> list[Mark]:
    """Which steps are held on this phone; none where nobody holds any."""
    try:
        return [Mark(*mark) for mark in ask(run, "held").get("held", [])]
    except (OSError, ValueError):
        return []


def taken(run: Path) -> int:
    """Bytes of this phone's memory that are held for the run already."""
    try:
        return int(ask(run, "held").get("taken", 0))
    except (OSError, ValueError):
        return 0


def end(run: Path) -> bool:
    """Whether there was anybody to end."""
    try:
        ask(run, "end")
    except (OSError, ValueError):
        return False
    _wait(lambda: not listens(run), TIMEOUT_S)
    return True


def ensure(run: Path) -> None:
    """Before MPI is there: a process started afterwards would be taken for a part of the job."""
    if listens(run):
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith(MPI)}
    with (run / layout.MEMCKPT_LOG).open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "phone_agent", "memckpt-server", run.name],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # whoever kills the rank and its group does not reach it
        )
    if not _wait(lambda: listens(run), PATIENCE_S):
        raise KeeperError(f"nobody could be started to hold the training state: see {run / layout.MEMCKPT_LOG}")


def listens(run: Path) -> bool:
    try:
        connected(run).close()
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
