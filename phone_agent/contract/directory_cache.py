"""A cache of directories, each named by its kind and a fingerprint of its inputs: core-x86_64-linux-0123456789abcdef.

Pruning keeps the newest of each kind, and all that were used recently.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NEWEST = 4
UNUSED_S = 24 * 3600.0
_FINGERPRINT = "[0-9a-f]{16}"
_GONE = ".gone-"  # prefix of directories that are being removed


def use(place: Path) -> bool:
    """Whether the directory exists. If so, it counts as used now, and pruning keeps it for a while."""
    with suppress(OSError), _locked(place.parent, fcntl.LOCK_SH):  # a cache that cannot be written is not pruned either
        os.utime(place)
    return place.is_dir()


def prune(place: Path, newest: int = NEWEST, unused_s: float = UNUSED_S) -> None:
    """Removes directories of the same kind as `place` that are neither among the newest nor recently used."""
    kind, _, _ = place.name.rpartition("-")
    with suppress(OSError):
        with _locked(place.parent, fcntl.LOCK_EX | fcntl.LOCK_NB):
            for old in _of_kind(place.parent, kind)[newest:]:
                if old != place and time.time() - old.stat().st_mtime > unused_s:
                    _put_aside(old)
        for gone in _named(place.parent, f"{_GONE}{kind}"):  # also those that an interrupted process left
            shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    with (directory / ".prune.lock").open("a") as lock:
        fcntl.flock(lock, how)
        yield


def _of_kind(directory: Path, kind: str) -> list[Path]:
    """Most recently used first."""
    return sorted(_named(directory, kind), key=lambda path: path.stat().st_mtime, reverse=True)


def _named(directory: Path, kind: str) -> list[Path]:
    name = re.compile(f"{re.escape(kind)}-{_FINGERPRINT}")
    return [
        path for path in directory.iterdir() if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    ]


def _put_aside(old: Path) -> None:
    """Renames before removal, so that no process finds an incomplete directory."""
    with suppress(OSError):
        old.rename(old.with_name(f"{_GONE}{old.name}"))
        old.with_name(f"{old.name}.lock").unlink(missing_ok=True)
