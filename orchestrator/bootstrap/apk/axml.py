"""Parser of Android's binary XML, the format of AndroidManifest.xml in APKs: elements and attributes only.

A file consists of chunks (type, header size, size): a string pool, the resource ids of the attribute names at the start
of that pool, and elements that refer to both by index.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_STRING_POOL: Final = 0x0001
_RESOURCE_MAP: Final = 0x0180
_START_ELEMENT: Final = 0x0102
_END_ELEMENT: Final = 0x0103
_UTF8: Final = 0x100
_NONE: Final = 0xFFFFFFFF
_TYPE_STRING: Final = 0x03

# Names may be stripped from the pool; these resource ids are stable (android.R.attr).
_ATTRIBUTES: Final = {
    0x01010003: "name",
    0x0101000B: "sharedUserId",
    0x0101000F: "debuggable",
    0x0101021B: "versionCode",
    0x0101021C: "versionName",
}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | int]
    children: list[Element] = field(default_factory=list)

    def find(self, *path: str) -> Iterator[Element]:
        """Descendants along a path of tags."""
        first, *rest = path
        for child in self.children:
            if child.tag == first:
                yield from child.find(*rest) if rest else [child]

    def text(self, attribute: str) -> str:
        return str(self.attributes.get(attribute, ""))


def parse(data: bytes) -> Element:
    """The root element. Raises ValueError if the data is not binary XML."""
    try:
        return _parse(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged binary XML: {error}") from error


def _parse(data: bytes) -> Element:
    strings: list[str] = []
    numbers: list[int] = []
    top = Element("", {})
    open_elements = [top]
    for kind, header, chunk in _chunks(data):
        if kind == _STRING_POOL:
            strings = _strings(chunk)
        elif kind == _RESOURCE_MAP:
            numbers = [number for (number,) in struct.iter_unpack("<I", chunk[header:])]
        elif kind == _START_ELEMENT:
            element = _element(chunk[header:], strings, numbers)
            open_elements[-1].children.append(element)
            open_elements.append(element)
        elif kind == _END_ELEMENT:
            open_elements.pop()
    if len(top.children) != 1 or len(open_elements) != 1:
        raise ValueError("not a single XML document")
    return top.children[0]


def _chunks(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    kind, at, size = struct.unpack_from("<HHI", data)
    if kind != 0x0003 or size > len(data):
        raise ValueError("not Android's binary XML")
    while at < size:
        kind, header, length = struct.unpack_from("<HHI", data, at)
        if length < 8 or at + length > size:
            raise ValueError("a chunk exceeds the file")
        yield kind, header, data[at : at + length]
        at += length


def _strings(chunk: bytes) -> list[str]:
    count, _, flags, start = struct.unpack_from("<IIII", chunk, 8)
    if count > len(chunk) // 4:
        raise ValueError("more strings than the chunk can hold")
    offsets = struct.unpack_from(f"<{count}I", chunk, 28)
    read = _utf8 if flags & _UTF8 else _utf16
    strings: list[str] = []
    left = len(chunk)
    for offset in offsets:
        strings.append(read(chunk, start + offset))
        left -= len(strings[-1])
        if left < 0:
            raise ValueError("strings overlap")
    return strings


def _utf8(chunk: bytes, at: int) -> str:
    """Length in characters, length in bytes, bytes."""
    at += 2 if chunk[at] & 0x80 else 1
    length = chunk[at]
    at += 1
    if length & 0x80:
        length = (length & 0x7F) << 8 | chunk[at]
        at += 1
    return chunk[at : at + length].decode("utf-8", "replace")


def _utf16(chunk: bytes, at: int) -> str:
    (length,) = struct.unpack_from("<H", chunk, at)
    at += 2
    if length & 0x8000:
        (low,) = struct.unpack_from("<H", chunk, at)
        length = (length & 0x7FFF) << 16 | low
        at += 2
    return chunk[at : at + 2 * length].decode("utf-16-le", "replace")


def _element(body: bytes, strings: list[str], numbers: list[int]) -> Element:
    _, tag, start, size, count = struct.unpack_from("<IIHHH", body)
    attributes: dict[str, str | int] = {}
    for at in range(start, start + count * size, size):
        _, name, raw, _, _, kind, value = struct.unpack_from("<IIIHBBI", body, at)
        key = _ATTRIBUTES.get(numbers[name]) if name < len(numbers) else None
        text = strings[raw] if raw != _NONE else strings[value] if kind == _TYPE_STRING else None
        attributes[key or strings[name]] = value if text is None else text
    return Element(strings[tag], attributes)
