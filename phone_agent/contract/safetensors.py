"""safetensors: named arrays in one file, with nothing in it that could run.

    8 bytes   length of the header, little-endian
    header    JSON: name -> dtype, shape, data_offsets; and __metadata__, strings by name
    data      the arrays, one after the other

Files come from anywhere, so all of it is checked before any of it is used: the arrays must lie side by side and fill
the file exactly. https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.files import atomic_write

PREFIX = struct.Struct("<Q")
LARGEST_HEADER = 100_000_000  # as in the library everyone uses
MOST_DIMENSIONS = 32
LARGEST_ARRAY = 2**63  # bytes, sides of 0 left out: what numpy can say a shape of
ALIGNMENT = 8
METADATA = "__metadata__"
BFLOAT16 = "BF16"
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    BFLOAT16: "<u2",  # numpy has none: read as float32, never written
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "<u1",
    "BOOL": "|b1",
}
NAMES = {np.dtype(numpy): name for name, numpy in DTYPES.items() if name != BFLOAT16}

Array = NDArray[Any]


class SafetensorsError(AgentError):
    """A file that is not what it says it is, or arrays that cannot be written."""

    code = ErrorCode.BAD_TENSOR_FILE


@dataclass(frozen=True)
class Content:
    tensors: dict[str, Array]
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read(path: Path) -> Content:
    """All of it; the arrays are parts of one buffer, and may be written to."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except OSError as error:
        raise SafetensorsError(f"{path} cannot be read: {error.strerror}") from None
    except (SafetensorsError, MemoryError) as error:
        why = error or "it does not fit in memory"
        raise SafetensorsError(f"{path} is not a valid safetensors file: {why}") from None


def parse_metadata(file: BinaryIO) -> dict[str, str]:
    """Of an open file, from its current position on."""
    return _header(file)[1]


def write(path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> str:
    """The file's sha256. The file is there whole or not at all, also after a power cut."""
    ordered = _ordered(tensors)
    with atomic_write(path) as file:
        return _write(file, ordered, _described(ordered, metadata or {}))


def _read(file: BinaryIO) -> Content:
    entries, metadata = _header(file)
    size = entries[-1].end if entries else 0
    data = np.fromfile(file, np.uint8, size)
    if data.size != size:
        raise SafetensorsError("the file shrank while it was being read")
    return Content({entry.name: _array(entry, data) for entry in entries}, metadata)


def _array(entry: _Entry, data: NDArray[np.uint8]) -> Array:
    flat = data[entry.begin : entry.end].view(DTYPES[entry.dtype])
    if entry.dtype == BFLOAT16:
        flat = (flat.astype("<u4") << np.uint32(16)).view("<f4")
    if entry.dtype == "BOOL" and flat.view(np.uint8).max(initial=0) > 1:
        raise SafetensorsError(f"{_quoted(entry.name)} has boolean values other than 0 and 1")
    return flat.reshape(entry.shape)


def _header(file: BinaryIO) -> tuple[list[_Entry], dict[str, str]]:
    """Entries in the order they lie in the file."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size:
        raise SafetensorsError("the file is too short to hold the header length")
    (length,) = PREFIX.unpack(prefix)
    if length > LARGEST_HEADER:
        raise SafetensorsError(f"the header has {length} bytes; at most {LARGEST_HEADER} are allowed")
    if length > size - PREFIX.size:
        raise SafetensorsError("the file ends within the header")
    raw = _json(file.read(length))
    metadata = _metadata(raw.pop(METADATA, {}))
    entries = sorted(
        (_entry(name, described) for name, described in raw.items()), key=lambda each: (each.begin, each.end)
    )
    _check_cover(entries, size - PREFIX.size - length)
    return entries, metadata


def _json(header: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(header.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        raise SafetensorsError("the header is nested too deeply") from None
    except ValueError as error:
        raise SafetensorsError(f"the header is not JSON: {error}") from None
    if not header.startswith(b"{") or not isinstance(raw, dict):
        raise SafetensorsError("the header is not a JSON object")
    return raw


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise SafetensorsError(f"the header has {_quoted(twice)} twice")
    return found


def _no_constant(word: str) -> Any:
    raise SafetensorsError(f"the header contains {word}, which is not JSON")


def _metadata(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        raise SafetensorsError(f"{METADATA} is not a mapping of strings to strings")
    return raw


def _entry(name: str, raw: Any) -> _Entry:
    what = _quoted(name)
    if not isinstance(raw, dict) or set(raw) != {"dtype", "shape", "data_offsets"}:
        raise SafetensorsError(f"{what} must be described by dtype, shape and data_offsets")
    dtype, shape, offsets = raw["dtype"], raw["shape"], raw["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise SafetensorsError(f"{what} has unsupported type {_quoted(dtype)}; supported: {', '.join(DTYPES)}")
    if not _whole_numbers(shape) or len(shape) > MOST_DIMENSIONS:
        raise SafetensorsError(f"{what} has an invalid shape: expected at most {MOST_DIMENSIONS} whole numbers")
    if not _whole_numbers(offsets) or len(offsets) != 2:
        raise SafetensorsError(f"the data_offsets of {what} are not two whole numbers")
    begin, end = offsets
    needed = prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    if end - begin != needed:
        raise SafetensorsError(f"{what} has {end - begin} bytes, but {dtype} of shape {tuple(shape)} needs {needed}")
    if prod(max(1, side) for side in shape) * np.dtype(DTYPES[dtype]).itemsize >= LARGEST_ARRAY:
        raise SafetensorsError(f"{what} has a shape too large for memory: {_quoted(tuple(shape))}")
    return _Entry(name, dtype, tuple(shape), begin, end)


def _whole_numbers(raw: Any) -> bool:
    return isinstance(raw, list) and all(type(each) is int and 0 <= each < 2**63 for each in raw)


def _check_cover(entries: list[_Entry], size: int) -> None:
    end = 0
    for entry in entries:
        if entry.begin != end:
            gap = f"leaves a gap of {entry.begin - end} bytes before it"
            how = "overlaps the array before it" if entry.begin < end else gap
            raise SafetensorsError(f"{_quoted(entry.name)} {how}")
        end = entry.end
    if end != size:
        how = "truncated" if end > size else "longer than described"
        raise SafetensorsError(f"{how}: expected {end} bytes of data, got {size}")


def _quoted(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _ordered(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Wide numbers first, so that every array starts where its numbers may."""
    for name, array in tensors.items():
        if name == METADATA:
            raise SafetensorsError(f"an array cannot be named {METADATA}")
        if array.dtype.newbyteorder("<") not in NAMES:
            raise SafetensorsError(f"{_quoted(name)} is {array.dtype}, which safetensors does not support")
    return dict(sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize))


def _described(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    begin = 0
    for name, array in tensors.items():
        dtype = NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, begin + array.nbytes]}
        begin += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return text + b" " * (-(PREFIX.size + len(text)) % ALIGNMENT)


def _write(file: BinaryIO, tensors: Mapping[str, Array], header: bytes) -> str:
    digest = hashlib.sha256()
    for piece in (PREFIX.pack(len(header)), header):
        digest.update(piece)
        file.write(piece)
    for array in tensors.values():
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
        digest.update(plain)
        file.write(plain)
    return digest.hexdigest()
