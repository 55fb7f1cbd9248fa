"""Walk a directory tree. Follows symlinks: images may be on other disks, or shared between classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

OnError = Callable[[OSError], None]


def walk(
    top: Path, *, hidden: bool = True, onerror: OnError | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Like os.walk, sorted, with each directory visited once, because symlinks may form cycles.

    `hidden`: include names that start with a dot. Without `onerror`, unreadable directories are skipped."""
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
