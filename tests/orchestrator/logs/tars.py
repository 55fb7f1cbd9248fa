"""Hand-made tar archives, valid and hostile."""

from __future__ import annotations


def member(
    name: bytes, content: bytes = b"", kind: bytes = b"0", *, size: int | None = None, link: bytes = b""
) -> bytes:
    return header(name, len(content) if size is None else size, kind, link) + content + bytes(-len(content) % 512)


def header(name: bytes, size: int, kind: bytes = b"0", link: bytes = b"") -> bytes:
    fields = [
        name[:100].ljust(100, b"\0"),
        b"0000600\0",
        b"0000000\0",
        b"0000000\0",
        b"%011o\0" % size,
        b"00000000000\0",
    ]
    start, rest = b"".join(fields), kind + link[:100].ljust(100, b"\0") + b"ustar\x0000"
    block = (start + b" " * 8 + rest).ljust(512, b"\0")
    return start + b"%06o\0 " % sum(block) + block[156:]


END = bytes(1024)
