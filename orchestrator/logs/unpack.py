"""Unpack a tar stream from a phone that is not trusted.

The phone sends its run directory with `tar --format=ustar`. Whatever arrives, only regular files with plain names are
written, into one empty directory, within limits; anything else is skipped and noted. Python's tarfile is not used: it
reads long names and sizes of extended headers into memory before its caller can refuse them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = 512
_PIECE = 1 << 16
_NAME = re.compile(r"(?:\./)?([A-Za-z0-9][A-Za-z0-9._-]{0,79})")
_REGULAR_FILE = (b"0", b"\0")
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a directory",
    b"6": "a pipe",
}


@dataclass(frozen=True)
class Limits:
    """What one phone may send."""

    file_bytes: int = 64 << 20
    total_bytes: int = 256 << 20
    files: int = 256
    seconds: float = 300.0


DEFAULT_LIMITS = Limits()
_MAX_NOTES = 20


@dataclass
class UnpackResult:
    files: dict[str, int] = field(default_factory=dict)  # name -> bytes kept
    notes: list[str] = field(default_factory=list)  # what was skipped, truncated or invalid

    @property
    def complete(self) -> bool:
        return not self.notes

    def note(self, message: str) -> None:
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(message)


class _StreamEndedError(Exception):
    """The stream ended before the archive; the message says why."""


@dataclass(frozen=True)
class _Member:
    raw_name: bytes
    kind: bytes
    size: int

    @property
    def padding(self) -> int:
        return -self.size % _BLOCK


def unpack(chunks: Iterable[bytes], target: Path, limits: Limits = DEFAULT_LIMITS) -> UnpackResult:
    """Write the files of the archive into `target`, an empty directory. Never raises for what the phone sent."""
    extractor = _Extractor(_Stream(chunks, limits), target, limits)
    try:
        for member in _members(extractor.stream):
            extractor.extract(member)
    except _StreamEndedError as end:
        extractor.result.notes.append(str(end))
    return extractor.result


class _Extractor:
    def __init__(self, stream: _Stream, target: Path, limits: Limits) -> None:
        self.stream = stream
        self.result = UnpackResult()
        self._target = target
        self._limits = limits

    def extract(self, member: _Member) -> None:
        name = _plain_name(member.raw_name)
        reason = self._reason_to_skip(member, name)
        if reason is None and name is not None:
            self._write(name, member)
        else:
            self.result.note(f"skipped {_shown(member.raw_name)}: {reason}")
            self.stream.skip(member.size)
        self.stream.skip(member.padding)

    def _reason_to_skip(self, member: _Member, name: str | None) -> str | None:
        if member.kind not in _REGULAR_FILE:
            return f"{_KINDS.get(member.kind, 'an unknown type of entry')}, not a file"
        if name is None:
            return "not a plain file name"
        if name in self.result.files:
            return "a second file with this name"
        if len(self.result.files) >= self._limits.files:
            return f"more than {self._limits.files} files"
        return None

    def _write(self, name: str, member: _Member) -> None:
        kept = min(member.size, self._limits.file_bytes)
        self.result.files[name] = 0
        descriptor = os.open(self._target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for piece in self.stream.pieces(kept):
                file.write(piece)
                self.result.files[name] += len(piece)
        if kept < member.size:
            self.result.note(f"{name} is truncated: kept {kept} of {member.size} bytes")
            self.stream.skip(member.size - kept)


def _plain_name(raw: bytes) -> str | None:
    match = _NAME.fullmatch(raw.decode("ascii", errors="replace"))
    return match[1] if match else None


def _shown(raw: bytes) -> str:
    return repr(raw[:60].decode("utf-8", errors="replace"))


def _members(stream: _Stream) -> Iterator[_Member]:
    while (block := stream.read(_BLOCK)) != bytes(_BLOCK):
        yield _parse_header(block)


def _parse_header(block: bytes) -> _Member:
    claimed = _octal(block[148:156])
    actual = sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")
    size = _octal(block[124:136])
    if claimed != actual or size is None:
        raise _StreamEndedError("invalid or damaged tar archive")
    prefix, name = _text(block[345:500]), _text(block[0:100])
    return _Member(raw_name=prefix + b"/" + name if prefix else name, kind=block[156:157], size=size)


def _text(raw: bytes) -> bytes:
    return raw.split(b"\0", 1)[0]


def _octal(raw: bytes) -> int | None:
    digits = raw.strip(b" \0")
    return int(digits, 8) if re.fullmatch(rb"[0-7]{1,11}", digits) else None


class _Stream:
    """Bytes from a phone, limited in size and time: an endless or stuck stream ends here."""

    def __init__(self, chunks: Iterable[bytes], limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""
        self._left = limits.total_bytes
        self._limits = limits
        self._clock = clock
        self._deadline = clock() + limits.seconds

    def read(self, count: int) -> bytes:
        return b"".join(self.pieces(count))

    def skip(self, count: int) -> None:
        for _ in self.pieces(count):
            pass

    def pieces(self, count: int) -> Iterator[bytes]:
        while count:
            piece = self._read_some(min(count, _PIECE))
            count -= len(piece)
            yield piece

    def _read_some(self, most: int) -> bytes:
        while not self._buffer:
            self._buffer = self._next_chunk()
        piece, self._buffer = self._buffer[:most], self._buffer[most:]
        return piece

    def _next_chunk(self) -> bytes:
        if self._clock() > self._deadline:
            raise _StreamEndedError(f"gave up after {self._limits.seconds:.0f} s")
        chunk = next(self._chunks, None)
        if chunk is None:
            raise _StreamEndedError("the phone stopped sending before the end of the archive")
        self._left -= len(chunk)
        if self._left < 0:
            raise _StreamEndedError(f"stopped at {self._limits.total_bytes} bytes: the phone sends too much data")
        return chunk
