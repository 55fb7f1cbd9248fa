"""Decompress files from elsewhere within bounds: a small file must not fill the memory of this computer.

Real datasets, weights and package indexes expand to a few times their size; a file of zeros expands a thousandfold.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

FREE_BYTES = 64 << 20  # that any file may expand to
MAX_RATIO = 20  # beyond that: expanded bytes per compressed byte
ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)

_FORMATS: dict[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),  # type: ignore[dict-item,return-value]
    b"BZh": bz2.BZ2File,  # type: ignore[dict-item]
    b"\xfd7zXZ": lzma.LZMAFile,  # type: ignore[dict-item]
}


class TooLargeError(ValueError):
    """It expands to more than its size justifies."""


def max_expanded(compressed: int) -> int:
    return FREE_BYTES + MAX_RATIO * compressed


class BoundedReader(io.RawIOBase):
    """Reads a stream; more than `limit` bytes raise TooLargeError."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file, self._left, self._limit = file, limit, limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Reads only as much as the limit allows, however much is asked for."""
        if size < 0:
            size = self._left + 1
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise TooLargeError(f"expands to more than {self._limit >> 20} MiB: too much for its size")
        return data


def open_compressed(file: BinaryIO, size: int) -> BoundedReader:
    """The content of a file of `size` bytes: decompressed, if it starts like a gzip, bzip2 or xz file."""
    start = file.read(6)
    file.seek(0)
    decompressor = next((each for magic, each in _FORMATS.items() if start.startswith(magic)), None)
    return BoundedReader(decompressor(file) if decompressor else file, max_expanded(size))


def decompress(raw: bytes) -> bytes:
    """`raw` itself if it is not compressed. Raises one of ERRORS, or TooLargeError."""
    return open_compressed(io.BytesIO(raw), len(raw)).read()


def check_zip(path: Path) -> None:
    """Members may overlap in the file: every one counts."""
    with zipfile.ZipFile(path) as archive:
        expanded = sum(member.file_size for member in archive.infolist())
    if expanded > max_expanded(path.stat().st_size):
        raise TooLargeError(f"expands to {expanded >> 20} MiB: too much for its size")
