"""Who may touch a dataset's folder: many runs that read it, or one push or removal."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from phone_agent.contract.errors import AgentError, ErrorCode, code_of

LOCK = ".lock"


def hold(directory: Path) -> IO[str]:
    """For reading, until the file is closed."""
    return _locked(directory, fcntl.LOCK_SH, f"a push to {directory} is under way: wait for it")


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """For changing it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AgentError(f"{directory} cannot be written: {error.strerror}", code=code_of(error)) from None
    busy = f"{directory} is in use, by a run that learns from it or by another push: wait for it, or clusterctl stop"
    with _locked(directory, fcntl.LOCK_EX, busy):
        yield


def _locked(directory: Path, how: int, busy: str) -> IO[str]:
    try:
        lock = (directory / LOCK).open("a")
    except OSError as error:
        raise AgentError(f"{directory} cannot be written: {error.strerror}", code=code_of(error)) from None
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise AgentError(busy, code=ErrorCode.DATA_BUSY) from None
    return lock
