"""The operands of an op without addresses: blocks of memory that point to each other.

So the same case runs here, on pages with guards around them, and in another process on another processor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.core.ops import DType, Kind

Array = NDArray[Any]

GAP = np.float32(12345.5)  # fills the gaps between output rows, which must not be written
GAPS = (float(GAP), float(np.float16(GAP)))  # in fp32 and in fp16
TYPES = {DType.FP32: np.float32, DType.FP16: np.float16}
HALF = 2.0**-11  # relative rounding error of fp16


@dataclass(eq=False)
class Memory:
    """One block. `pointers` are (offset, block): the address of that block belongs there.

    `per_thread`: the core wants one such block a thread, end to end; each then starts with its share of the content.
    """

    name: str
    data: Array
    pointers: list[tuple[int, Memory]] = field(default_factory=list)
    per_thread: bool = False

    def content(self, threads: int) -> Array:
        return np.tile(self.data / threads, threads) if self.per_thread else self.data

    def reachable(self) -> Iterator[Memory]:
        """This block, then all that it points to, each once."""
        seen: dict[int, Memory] = {}
        waiting = [self]
        while waiting:
            block = waiting.pop(0)
            if id(block) not in seen:
                seen[id(block)] = block
                waiting += [target for _, target in block.pointers]
        yield from seen.values()


@dataclass(frozen=True)
class Wanted:
    """The expected contents of a block. `tolerance` is relative to the largest value; 0 means identical bits."""

    memory: Memory
    values: Array
    tolerance: float


@dataclass(frozen=True)
class Case:
    name: str
    kind: Kind
    op: Memory
    wanted: tuple[Wanted, ...]
    scratch: tuple[Memory, ...] = ()  # may have any contents afterwards; all other blocks must be unchanged


def struct(layout: type[ctypes.Structure], name: str | None = None, /, **fields: Any) -> Memory:
    """An op or a nested struct. A block becomes a pointer if the field is one; otherwise its bytes are copied in."""
    made, pointers, embedded = layout(), [], []
    for key, value in fields.items():
        place = getattr(layout, key).offset
        if not isinstance(value, Memory):
            setattr(made, key, value)
        elif isinstance(getattr(made, key), ctypes.Structure):
            embedded.append((place, value))
        else:
            pointers.append((place, value))
    content = np.frombuffer(bytes(made), np.uint8).copy()
    for place, part in embedded:
        content[place : place + len(part.data)] = part.data
        pointers += [(place + offset, target) for offset, target in part.pointers]
    return Memory(name or layout.__name__, content, pointers)


def block(name: str, values: Array, dtype: Any = np.float32) -> Memory:
    return Memory(name, np.ascontiguousarray(values, dtype).reshape(-1))


def with_gaps(values: Array, ld: int, gap: float, dtype: Any = np.float32) -> Array:
    """Rows of channels, `ld` apart. Memory ends with the last row, as for the last channels of a wider tensor."""
    rows = values.reshape(-1, values.shape[-1])
    wide = np.full((len(rows), ld), gap, dtype)
    wide[:, : rows.shape[1]] = rows
    return wide.reshape(-1)[: (len(rows) - 1) * ld + rows.shape[1]].copy()


def read_rows(name: str, values: Array, ld: int, dtype: DType = DType.FP32) -> Memory:
    """An input: the gaps between rows are NaN, which would poison any result that reads them."""
    return Memory(name, with_gaps(values, ld, np.nan, TYPES[dtype]))


def written_rows(
    name: str, before: Array | None, want: Array, ld: int, tolerance: float, dtype: DType = DType.FP32
) -> Wanted:
    """An output: `before` is what it adds to, or None if every element must be overwritten."""
    empty = np.full(want.shape, np.nan) if before is None else before
    gap = GAPS[dtype]
    memory = Memory(name, with_gaps(empty, ld, gap, TYPES[dtype]))
    if tolerance and dtype == DType.FP16:
        tolerance += HALF
    return Wanted(memory, with_gaps(want, ld, gap, np.float64), tolerance)
