"""Files by their names, from a folder or out of a tar archive that is read and never unpacked."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from orchestrator.data.sources.source import SourceError

MOST_MEMBERS = 10_000
MOST_BYTES = 1 << 30  # of one file, unpacked: no file of the formats read here is a tenth of this
MOST_IN_ALL = 2 << 30  # of an archive, unpacked: it is held in memory
TAR_ERRORS = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError)


class Contents:
    """Plain files by their bare names. Folders in an archive do not matter, links and devices are not there."""

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
        if path.stat().st_size > MOST_BYTES:
            raise SourceError(f"{path} has {path.stat().st_size} bytes: no file of this format is as large")
        return path.read_bytes()

    def where(self, name: str) -> str:
        return f"{self.path}:{name}" if self._files is not None else str(self.path / name)


def is_tar(path: Path) -> bool:
    try:
        return path.is_file() and tarfile.is_tarfile(path)
    except TAR_ERRORS:
        return False


def open_contents(path: Path, wanted: Callable[[str], object]) -> Contents:
    """Of an archive only the files of wanted names are read; a hostile one ends in an error, not in a full disk."""
    if path.is_dir():
        return Contents(path)
    try:
        with tarfile.open(path, "r|*") as archive:
            return Contents(path, _members(archive, path, wanted))
    except TAR_ERRORS as error:
        raise SourceError(f"{path} cannot be read: {error}", remedy="download it again") from None


def _members(archive: tarfile.TarFile, path: Path, wanted: Callable[[str], object]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    unpacked = 0
    for count, member in enumerate(archive):
        name = PurePosixPath(member.name).name
        unpacked += member.size
        if count >= MOST_MEMBERS or not 0 <= member.size <= MOST_BYTES or unpacked > MOST_IN_ALL:
            raise SourceError(f"{path}: {member.name!r} is too much: this is no archive of such a dataset")
        if not member.isreg() or not wanted(name):
            continue
        if name in found:
            raise SourceError(f"{path} holds {name} twice: this is no archive of such a dataset")
        content = archive.extractfile(member)
        raw = content.read(MOST_BYTES) if content else b""
        if len(raw) != member.size:
            raise SourceError(f"{path} ends within {name}", remedy="download it again")
        found[name] = raw
    return found


def unzipped(raw: bytes, where: str) -> bytes:
    """What a gzip file holds, up to a size that no such file has."""
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        with gzip.GzipFile(fileobj=_stream(raw)) as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{where} cannot be read: {error}", remedy="download it again") from None
    if len(content) > MOST_BYTES:
        raise SourceError(f"{where} unpacks to more than {MOST_BYTES} bytes: no file of this format is as large")
    return content


def _stream(raw: bytes) -> BinaryIO:
    from io import BytesIO

    return BytesIO(raw)
