"""Read files by name from a directory or a tar archive, without unpacking the archive."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from orchestrator.data.sources.source import SourceError
from orchestrator.decompress import ERRORS, TooLargeError, decompress, max_expanded, open_compressed

MAX_MEMBERS = 10_000
MAX_FILE_BYTES = 1 << 30  # per unpacked file; real files are less than a tenth of this
MAX_TOTAL_BYTES = 2 << 30  # per unpacked archive; it is held in memory
TAR_ERRORS = (tarfile.TarError, ValueError, *ERRORS)


class Contents:
    """Regular files by base name. Directories in an archive are ignored, as are links and devices."""

    def __init__(self, path: Path, files: dict[str, bytes] | None = None) -> None:
        self.path, self._files = path, files

    def names(self) -> set[str]:
        if self._files is not None:
            return set(self._files)
        return {each.name for each in self.path.iterdir() if each.is_file()}

    def read(self, name: str) -> bytes:
        if self._files is not None:
            return self._files[name]
        path = self.path / name
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SourceError(f"{path} has {path.stat().st_size} bytes: too large for this format")
        return path.read_bytes()

    def where(self, name: str) -> str:
        return f"{self.path}:{name}" if self._files is not None else str(self.path / name)


def is_tar(path: Path) -> bool:
    try:
        with path.open("rb") as file, _open_tar(file):
            return True
    except TAR_ERRORS:
        return False


def open_contents(path: Path, selected: Callable[[str], object]) -> Contents:
    """Read only the files selected by name. A malicious archive raises an error."""
    if path.is_dir():
        return Contents(path)
    try:
        with path.open("rb") as file, _open_tar(file) as archive:
            return Contents(path, _members(archive, path, selected))
    except TAR_ERRORS as error:
        raise SourceError(f"{path} cannot be read: {error}", remedy="download it again") from None


def _open_tar(file: BinaryIO) -> tarfile.TarFile:
    """Reads its first header."""
    return tarfile.open(fileobj=open_compressed(file, os.fstat(file.fileno()).st_size), mode="r|")


def _members(archive: tarfile.TarFile, path: Path, selected: Callable[[str], object]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    unpacked, most = 0, min(MAX_TOTAL_BYTES, max_expanded(path.stat().st_size))
    for count, member in enumerate(archive):
        name = PurePosixPath(member.name).name
        unpacked += member.size
        if count >= MAX_MEMBERS or not 0 <= member.size <= MAX_FILE_BYTES or unpacked > most:
            raise SourceError(f"{path}: {member.name!r} exceeds the limits of a dataset archive")
        if not member.isreg() or not selected(name):
            continue
        if name in found:
            raise SourceError(f"{path} contains {name} twice: not a valid dataset archive")
        content = archive.extractfile(member)
        raw = content.read(member.size) if content else b""
        if len(raw) != member.size:
            raise SourceError(f"{path} ends within {name}", remedy="download it again")
        found[name] = raw
    return found


def decompressed(raw: bytes, where: str) -> bytes:
    try:
        return decompress(raw)
    except (*ERRORS, TooLargeError) as error:
        raise SourceError(f"{where} cannot be read: {error}", remedy="download it again") from None
