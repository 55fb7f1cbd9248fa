"""What lies below a folder. Links are followed: people keep pictures on other disks, or share them between classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

OnError = Callable[[OSError], None]


def walk(
    top: Path, *, hidden: bool = True, onerror: OnError | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Every folder, the names of those in it and of its files, in order; each folder once, since links may go round.

    `hidden`: those whose names start with a dot as well. Without `onerror` what may not be read is left out."""
    seen = {top.resolve()}
    for here, subfolders, names in os.walk(top, onerror=onerror, followlinks=True):
        folder = Path(here)
        inside = sorted(name for name in subfolders if hidden or not name.startswith("."))
        subfolders[:] = [name for name in inside if _first_time(folder / name, seen)]
        yield folder, inside, sorted(names)


def _first_time(folder: Path, seen: set[Path]) -> bool:
    real = folder.resolve()
    new = real not in seen
    seen.add(real)
    return new
