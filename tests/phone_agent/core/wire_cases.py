"""Wire formats in numpy, which core/src/wire.c must match to the bit, and cases for it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.ops import DType, Kind
from tests.phone_agent.core import shapes
from tests.phone_agent.core.memory import Case, Memory, Wanted, struct

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

BLOCK = 256
SMALLEST = np.float32(2.0**-80)
SCALED = {DType.FP16, DType.INT8}
EXACT = 0.0
IN_PLACE = ("received in place", "received residual in place")  # the encoded result replaces the received chunk


def encoded(values: Floats, dtype: DType) -> Bytes:
    parts = [_encoded_block(values[start : start + BLOCK], dtype) for start in range(0, len(values), BLOCK)]
    return np.concatenate([np.zeros(0, np.uint8), *parts])


def decoded(held: Bytes, count: int, dtype: DType) -> Floats:
    values = np.empty(count, np.float32)
    start = 0
    for first in range(0, count, BLOCK):
        into = values[first : first + BLOCK]
        size = 4 * (dtype in SCALED) + len(into) * _item(dtype).itemsize
        into[...] = _decoded_block(held[start : start + size], dtype)
        start += size
    return values


def _item(dtype: DType) -> np.dtype[Any]:
    return np.dtype({DType.FP32: "f4", DType.FP16: "f2", DType.BF16: "u2", DType.INT8: "u1"}[dtype])


def _encoded_block(values: Floats, dtype: DType) -> Bytes:
    if dtype == DType.FP32:
        return values.view(np.uint8)
    if dtype == DType.BF16:
        bits = values.view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16).view(np.uint8)
    up, down = _scales(values, dtype)
    with np.errstate(invalid="ignore"):
        scaled = values * up
        if dtype == DType.FP16:
            numbers = scaled.astype(np.float16).view(np.uint8)
        else:
            sizes = np.rint(np.abs(scaled)).astype(np.int32) & 0x7F
            numbers = (sizes | np.signbit(scaled) << 7).astype(np.uint8)
    return np.concatenate([np.array([down]).view(np.uint8), numbers])


def _scales(values: Floats, dtype: DType) -> tuple[np.float32, np.float32]:
    largest = np.abs(values).max()
    if not np.isfinite(largest):
        return np.float32(1), np.float32(np.nan)
    if largest < SMALLEST:
        return np.float32(0), np.float32(0)
    if dtype == DType.FP16:
        shift = 15 - int(np.frexp(largest)[1])  # frexp has 0.5 <= m < 1
        return np.float32(2.0**shift), np.float32(2.0**-shift)
    return np.float32(127) / largest, largest / np.float32(127)


def _decoded_block(held: Bytes, dtype: DType) -> Floats:
    if dtype == DType.FP32:
        return held.view(np.float32)
    if dtype == DType.BF16:
        return (held.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    scale = held[:4].view(np.float32)[0]
    if dtype == DType.FP16:
        return _flushed(held[4:].view(np.float16).astype(np.float32) * scale)
    sizes = _flushed((held[4:] & 0x7F).astype(np.float32) * scale)
    return np.asarray(np.where(held[4:] & 0x80, -sizes, sizes))


def _flushed(values: Floats) -> Floats:
    """The core flushes values below 2^-126 to zero and keeps the sign."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)


def _numbers(name: str, count: int) -> Floats:
    """Values with the range of gradients, with all-zero blocks and ties; none below 2^-126."""
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    values = draw.standard_normal(count) * 2.0 ** draw.integers(-12, 4, count)
    values *= np.repeat(2.0 ** draw.choice([-100, -70, -20, 0, 30], -(-count // BLOCK)), BLOCK)[:count]
    values[draw.random(count) < 0.05] = 0
    ties = draw.random(count) < 0.05
    values[ties] = np.round(values[ties] * 4) / 4
    return _flushed(values.astype(np.float32))


def encodes(*, full: bool) -> Iterator[Case]:
    for count in shapes.lengths(full=full):
        for dtype in DType:
            for index, how in enumerate(("", "received", "residual", "received residual", *IN_PLACE)):
                yield _encode(count, dtype, how, write_back=(count + index) % 2 == 1)


def _encode(count: int, dtype: DType, how: str, *, write_back: bool) -> Case:
    name = f"{count} {dtype.name} {how}{' write_back' if write_back else ''}"
    meant = before = _numbers(name, count)
    fields: dict[str, Any] = {"values": Memory("values", before)}
    if "received" in how:
        fields["received"] = Memory("received", encoded(_numbers(name + " received", count), dtype))
        meant = _flushed(meant + decoded(fields["received"].data, count, dtype))
    if "residual" in how:
        fields["residual"] = Memory("residual", _numbers(name + " residual", count))
        meant = _flushed(meant + fields["residual"].data)
    sent = encoded(meant, dtype)
    there = decoded(sent, count, dtype)
    room = fields["received"] if how in IN_PLACE else Memory("to", np.full(len(sent), 77, np.uint8))
    wanted = [Wanted(room, sent, EXACT)]
    if write_back:
        wanted.append(Wanted(fields["values"], there, EXACT))
    if "residual" in how:
        wanted.append(Wanted(fields["residual"], _flushed(meant - there), EXACT))
    op = struct(ops.Encode, encoded=wanted[0].memory, count=count, dtype=dtype, write_back=int(write_back), **fields)
    return Case(name, Kind.ENCODE, op, tuple(wanted))


def decodes(*, full: bool) -> Iterator[Case]:
    for count in shapes.lengths(full=full):
        for dtype in DType:
            for accumulate in (False, True):
                name = f"{count} {dtype.name}{' accumulate' if accumulate else ''}"
                held = encoded(_numbers(name, count), dtype)
                before = _numbers(name + "before", count) if accumulate else np.full(count, np.nan, np.float32)
                there = decoded(held, count, dtype)
                into = Wanted(Memory("values", before), _flushed(before + there) if accumulate else there, EXACT)
                op = struct(
                    ops.Decode, encoded=Memory("encoded", held), values=into.memory, count=count, dtype=dtype,
                    accumulate=int(accumulate),
                )  # fmt: skip
                yield Case(name, Kind.DECODE, op, (into,))
