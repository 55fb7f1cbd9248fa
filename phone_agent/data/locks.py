"""File locks on a dataset folder: shared for runs that read it, exclusive for a push or removal."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from phone_agent.contract.errors import AgentError, ErrorCode, code_of

LOCK = ".lock"


def shared(directory: Path) -> IO[str]:
    """Shared lock, until the file is closed."""
    return _locked(directory, fcntl.LOCK_SH, f"a push to {directory} is in progress: wait until it is finished")


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Exclusive lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AgentError(f"{directory} is not writable: {error.strerror}", code=code_of(error)) from None
    busy = f"{directory} is in use by a training run or another push: wait, or run clusterctl stop"
    with _locked(directory, fcntl.LOCK_EX, busy):
        yield


def _locked(directory: Path, operation: int, busy: str) -> IO[str]:
    try:
        lock = (directory / LOCK).open("a")
    except OSError as error:
        raise AgentError(f"{directory} is not writable: {error.strerror}", code=code_of(error)) from None
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise AgentError(busy, code=ErrorCode.DATA_BUSY) from None
    return lock
