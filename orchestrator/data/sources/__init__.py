"""Formats people have their images in, told apart by content."""

from __future__ import annotations

from pathlib import Path

from orchestrator.data.sources import cifar, folder, idx
from orchestrator.data.sources.contents import is_tar
from orchestrator.data.sources.source import Source, SourceError

FORMATS = (
    "CIFAR-10 or CIFAR-100 (binary or python, folder or archive), "
    f"IDX files ({idx.NAMES}), or folders of JPEG or PNG pictures"
)


def recognise(path: Path, size: int) -> Source:
    """`size`: pixels a side that pictures are stored with."""
    if not path.exists():
        raise SourceError(f"there is nothing at {path}", remedy=f"name one of: {FORMATS}")
    if path.is_dir() or is_tar(path):
        for known in (cifar.recognise, idx.recognise):
            if found := _within(known(path), path):
                return found
        if pictures := folder.recognise(path, size):
            return pictures
    raise SourceError(f"{path} holds no dataset that is known here", remedy=f"name one of: {FORMATS}")


def _within(found: Source | None, path: Path) -> Source | None:
    """Archives have their files in a folder, which people unpack and then name the one around it."""
    if found or not path.is_dir():
        return found
    inner = [each for each in path.iterdir() if each.is_dir() and each.name.startswith("cifar-")]
    return cifar.recognise(inner[0]) if len(inner) == 1 else None
