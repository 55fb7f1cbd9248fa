"""Protocol buffers, as far as writing ONNX models and TensorBoard events takes: fields by number, one after the other.

Both schemas are small and frozen; the library for them brings a runtime, a compiler's output and a version to agree on.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; a negative number as the 64 bits it has."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer(number: int, value: int) -> bytes:
    return varint(number << 3 | _VARINT) + varint(value)


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    return varint(number << 3 | _FIXED32) + struct.pack("<f", value)


def data(number: int, value: bytes | memoryview) -> bytes:
    """Bytes, or a message within a message."""
    return b"".join((varint(number << 3 | _BYTES), varint(len(value)), value))


def text(number: int, value: str) -> bytes:
    return data(number, value.encode())
