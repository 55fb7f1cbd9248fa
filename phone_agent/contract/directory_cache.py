"""What is made once and kept: directories of a cache, each named by its sort and a fingerprint of what it is made from.

Whoever changes sources makes new ones all day. Of each sort the newest stay, and all that was used a while ago at most.
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
_GONE = ".gone-"  # before the name of what is being removed


def use(place: Path) -> bool:
    """Whether it is there; if so, nobody removes it from now on, for as long as things stay that are used."""
    with suppress(OSError), _locked(place.parent, fcntl.LOCK_SH):  # a cache that cannot be written is not pruned either
        os.utime(place)
    return place.is_dir()


def prune(place: Path, newest: int = NEWEST, unused_s: float = UNUSED_S) -> None:
    """Removes what has the same name as `place` but for the fingerprint: not the newest, and not used for so long."""
    sort, _, _ = place.name.rpartition("-")
    with suppress(OSError):
        with _locked(place.parent, fcntl.LOCK_EX | fcntl.LOCK_NB):
            for old in _alike(place.parent, sort)[newest:]:
                if old != place and time.time() - old.stat().st_mtime > unused_s:
                    _put_aside(old)
        for gone in _named(place.parent, f"{_GONE}{sort}"):  # also what somebody had no time to finish
            shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    with (directory / ".prune.lock").open("a") as lock:
        fcntl.flock(lock, how)
        yield


def _alike(directory: Path, sort: str) -> list[Path]:
    """The one used last comes first."""
    return sorted(_named(directory, sort), key=lambda path: path.stat().st_mtime, reverse=True)


def _named(directory: Path, sort: str) -> list[Path]:
    name = re.compile(f"{re.escape(sort)}-{_FINGERPRINT}")
    return [
        path for path in directory.iterdir() if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    ]


def _put_aside(old: Path) -> None:
    """At once: nobody finds half of it."""
    with suppress(OSError):
        old.rename(old.with_name(f"{_GONE}{old.name}"))
        old.with_name(f"{old.name}.lock").unlink(missing_ok=True)
