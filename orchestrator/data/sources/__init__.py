"""Supported dataset formats, detected by content."""

from __future__ import annotations

from pathlib import Path

from orchestrator.data.sources import cifar, folder, idx
from orchestrator.data.sources.contents import is_tar
from orchestrator.data.sources.source import Source, SourceError

FORMATS = (
    "CIFAR-10 or CIFAR-100 (binary or python, folder or archive), "
    f"IDX files ({idx.NAMES}), or image folders (JPEG, PNG)"
)


def recognize(path: Path, size: int) -> Source:
    """Detect the format. `size`: images are stored with this many pixels per side."""
    if not path.exists():
        raise SourceError(f"no such file or directory: {path}", remedy=f"supported formats: {FORMATS}")
    if path.is_dir() or is_tar(path):
        for known in (cifar.recognize, idx.recognize):
            if found := _in_subdirectory(known(path), path):
                return found
        if pictures := folder.recognize(path, size):
            return pictures
    raise SourceError(f"{path} is not a supported dataset", remedy=f"supported formats: {FORMATS}")


def _in_subdirectory(found: Source | None, path: Path) -> Source | None:
    """Unpacked archives often have an extra directory around the dataset."""
    if found or not path.is_dir():
        return found
    inner = [each for each in path.iterdir() if each.is_dir() and each.name.startswith("cifar-")]
    return cifar.recognize(inner[0]) if len(inner) == 1 else None
