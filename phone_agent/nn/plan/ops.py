"""Steps before they have addresses: the core's structs as plain fields, pointing into buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from phone_agent.contract import sizes
from phone_agent.core.ops import DType, Kind

FLOAT = sizes.FLOAT
DOUBLE = 8
ITEM_BYTES = {DType.FP32: FLOAT, DType.FP16: 2}


class MemorySpace(Enum):
    """Who provides a buffer's memory."""

    ARENA = "arena"  # the planner places it, for as long as steps touch it
    VALUES = "values"
    GRADIENTS = "gradients"
    STATISTICS = "statistics"
    VECTORS = "vectors"
    IMAGES = "images"
    CELLS = "cells"  # labels, loss, weight, draw


@dataclass(eq=False)
class Buffer:
    name: str
    bytes: int
    home: MemorySpace = MemorySpace.ARENA


@dataclass(frozen=True)
class Pointer:
    buffer: Buffer
    offset: int = 0  # bytes


@dataclass(frozen=True)
class TensorView:
    """Rows of channels; `ld` numbers lie between two rows."""

    buffer: Buffer
    rows: int
    channels: int
    ld: int
    start: int = 0  # numbers
    dtype: DType = DType.FP32

    @property
    def place(self) -> Pointer:
        return Pointer(self.buffer, self.start * ITEM_BYTES[self.dtype])

    @property
    def bytes(self) -> int:
        return self.rows * self.channels * ITEM_BYTES[self.dtype]

    @property
    def contiguous(self) -> bool:
        return self.ld == self.channels or self.rows == 1

    def slice(self, start: int, channels: int) -> TensorView:
        return TensorView(self.buffer, self.rows, channels, self.ld, self.start + start, self.dtype)

    def flat(self, rows: int) -> TensorView:
        """The same numbers as fewer, longer rows; of a contiguous view."""
        channels = self.rows * self.channels // rows
        return TensorView(self.buffer, rows, channels, channels, self.start, self.dtype)


@dataclass(eq=False)
class SharedStruct:
    """A struct that steps point to: a normalisation. Its identity counts."""

    fields: Mapping[str, Field]


Field: TypeAlias = "int | float | Pointer | SharedStruct | dict[str, Field] | dict[str, int] | None"


class Direction(Enum):
    FORWARD = "forward"
    AGAIN = "again"  # forward once more, for backward's sake
    BACKWARD = "backward"


@dataclass(eq=False)
class OpSpec:
    kind: Kind
    name: str
    direction: Direction
    fields: Mapping[str, Field]
    flops: int = 0
    traffic: int = 0  # bytes of activations read and written, each tensor once

    def places(self) -> Iterator[Pointer]:
        return _places(self.fields)


def _places(fields: Mapping[str, Field]) -> Iterator[Pointer]:
    for value in fields.values():
        if type(value) is Pointer:
            yield value
        elif type(value) is SharedStruct:
            yield from _places(value.fields)
        elif type(value) is dict:  # not Mapping: plans are compared by the dozen, and this is where that takes its time
            yield from _places(value)
