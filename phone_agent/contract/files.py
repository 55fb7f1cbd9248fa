"""Small files: read without raising, written atomically."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


def read_text(path: Path) -> str | None:
    """The file's text; None when it is absent or Android denies it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def read_json(path: Path) -> Any:
    """The document; None when it is absent, denied or damaged."""
    try:
        return json.loads(read_text(path) or "")
    except ValueError:
        return None


def read_tail(path: Path, size: int = 64 * 1024) -> list[str]:
    """The last lines of a file that may be long; none when it is absent."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def write_json(path: Path, document: Any) -> None:
    write_bytes(path, json.dumps(document).encode())


def write_bytes(path: Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write to and to read from, replaced atomically and durably: after a power cut, it has the old content
    or the new one.

    Errors name `path`, which the user may have chosen, not the temporary file.
    """
    try:
        with _temporary_file(path) as file:
            yield file
    except OSError as error:
        if error.filename is None:  # for example a full disk
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def _temporary_file(path: Path) -> Iterator[BinaryIO]:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        sync_directory(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sync_directory(directory: Path) -> None:
    """A rename survives a power cut only once its directory is synced."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
