"""As much of an ELF file as its tests ask for."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
NEEDED, TEXTREL = 1, 22
DYNSYM = 11


@dataclass(frozen=True)
class Segment:
    kind: int
    flags: int
    alignment: int
    offset: int
    size: int


@dataclass(frozen=True)
class Symbol:
    name: str
    is_defined: bool


class Elf:
    """64 bits, little-endian."""

    def __init__(self, path: Path) -> None:
        self._raw = path.read_bytes()
        headers = self._unpack("<QQIHHHHHH", 32)
        segments_at, sections_at, _, _, segment_size, segments, section_size, sections, _ = headers
        self.machine: int = self._unpack("<H", 18)[0]
        self.segments = [self._segment(segments_at + i * segment_size) for i in range(segments)]
        self._sections = [self._unpack("<IIQQQQIIQQ", sections_at + i * section_size) for i in range(sections)]

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(form, self._raw, offset)

    def _segment(self, at: int) -> Segment:
        kind, flags, offset, _, _, size, _, alignment = self._unpack("<IIQQQQQQ", at)
        return Segment(kind, flags, alignment, offset, size)

    def dynamic_tags(self) -> list[int]:
        table = next(segment for segment in self.segments if segment.kind == DYNAMIC)
        return [self._unpack("<Q", table.offset + i)[0] for i in range(0, table.size, 16)]

    def symbols(self) -> list[Symbol]:
        """Those other libraries see; the first entry of the table is none."""
        _, _, _, _, offset, size, link, _, _, _ = next(entry for entry in self._sections if entry[1] == DYNSYM)
        names = self._sections[link][4]
        entries = [self._unpack("<IBBH", offset + i) for i in range(24, size, 24)]
        return [Symbol(self._text(names + name), section != 0) for name, _, _, section in entries]

    def _text(self, at: int) -> str:
        return self._raw[at : self._raw.index(b"\0", at)].decode()
