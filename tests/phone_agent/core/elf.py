"""A minimal ELF reader, for the tests of the built library."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

LOAD, DYNAMIC, INTERPRETER, STACK = 1, 2, 3, 0x6474E551
SYMTAB, RELA, DYNSYM = 2, 4, 11
# Tags of the dynamic section.
NEEDED, HASH, RELATIVE_PATH, INIT, TEXTREL, INIT_ARRAY, RUN_PATH, RELR = 1, 4, 15, 12, 22, 25, 29, 36
GNU_HASH, VERSIONS_NEEDED = 0x6FFFFEF5, 0x6FFFFFFE
RELATIVE = 1027  # R_AARCH64_RELATIVE: adds the load address; needs no symbol lookup


@dataclass(frozen=True)
class Segment:
    kind: int
    flags: int
    alignment: int
    offset: int
    address: int
    size: int


@dataclass(frozen=True)
class Symbol:
    name: str
    is_defined: bool


class Elf:
    """A 64-bit, little-endian ELF file."""

    def __init__(self, path: Path) -> None:
        self._raw = path.read_bytes()
        headers = self._unpack("<QQIHHHHHH", 32)
        segments_at, sections_at, _, _, segment_size, segments, section_size, sections, self._names = headers
        self.machine: int = self._unpack("<H", 18)[0]
        self.segments = [self._segment(segments_at + i * segment_size) for i in range(segments)]
        self._sections = [self._unpack("<IIQQQQIIQQ", sections_at + i * section_size) for i in range(sections)]

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(form, self._raw, offset)

    def _segment(self, at: int) -> Segment:
        kind, flags, offset, address, _, size, _, alignment = self._unpack("<IIQQQQQQ", at)
        return Segment(kind, flags, alignment, offset, address, size)

    def dynamic_tags(self) -> list[int]:
        table = next(segment for segment in self.segments if segment.kind == DYNAMIC)
        return [self._unpack("<Q", table.offset + i)[0] for i in range(0, table.size, 16)]

    def section_kinds(self) -> set[int]:
        return {entry[1] for entry in self._sections}

    def section_names(self) -> list[str]:
        names = self._sections[self._names][4]
        return [self._text(names + entry[0]) for entry in self._sections[1:]]

    def relocations(self) -> set[int]:
        """The types of its relocations."""
        tables = [(entry[4], entry[5]) for entry in self._sections if entry[1] == RELA]
        return {self._unpack("<Q", at + i + 8)[0] & 0xFFFFFFFF for at, size in tables for i in range(0, size, 24)}

    def symbols(self) -> list[Symbol]:
        """The dynamic symbols; the first entry of the table is empty."""
        _, _, _, _, offset, size, link, _, _, _ = next(entry for entry in self._sections if entry[1] == DYNSYM)
        names = self._sections[link][4]
        entries = [self._unpack("<IBBH", offset + i) for i in range(24, size, 24)]
        return [Symbol(self._text(names + name), section != 0) for name, _, _, section in entries]

    def _text(self, at: int) -> str:
        return self._raw[at : self._raw.index(b"\0", at)].decode()
