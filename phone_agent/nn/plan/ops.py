"""Op specs: ops before they have addresses. The fields of the core's structs, with pointers into named buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from phone_agent.contract import sizes
from phone_agent.core.ops import DType, Kind

FLOAT = sizes.FLOAT
DOUBLE = 8
ITEM_BYTES = {DType.FP32: FLOAT, DType.FP16: 2}


class MemorySpace(Enum):
    """Who provides the memory of a buffer."""

    ARENA = "arena"  # the planner assigns it an offset, for as long as ops use it
    VALUES = "values"  # parameters
    GRADIENTS = "gradients"
    STATISTICS = "statistics"  # running mean and variance of batch normalizations
    VECTORS = "vectors"  # per-channel scale, shift, mean and inverse deviation
    IMAGES = "images"
    STEP_IO = "step_io"  # labels, loss, weight, dropout seed


@dataclass(eq=False)
class Buffer:
    name: str
    bytes: int
    space: MemorySpace = MemorySpace.ARENA


@dataclass(frozen=True)
class Pointer:
    buffer: Buffer
    offset: int = 0  # bytes


@dataclass(frozen=True)
class TensorView:
    """Rows of channels. `ld` (leading dimension) is the distance between rows, in elements."""

    buffer: Buffer
    rows: int
    channels: int
    ld: int
    start: int = 0  # elements
    dtype: DType = DType.FP32

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.buffer, self.start * ITEM_BYTES[self.dtype])

    @property
    def bytes(self) -> int:
        return self.rows * self.channels * ITEM_BYTES[self.dtype]

    @property
    def contiguous(self) -> bool:
        return self.ld == self.channels or self.rows == 1

    def slice(self, start: int, channels: int) -> TensorView:
        return TensorView(self.buffer, self.rows, channels, self.ld, self.start + start, self.dtype)

    def reshape(self, rows: int) -> TensorView:
        """The same elements in fewer, longer rows. The view must be contiguous."""
        channels = self.rows * self.channels // rows
        return TensorView(self.buffer, rows, channels, channels, self.start, self.dtype)


@dataclass(eq=False)
class SharedStruct:
    """A struct that several ops point to: a batch normalization. Compared by identity."""

    fields: Mapping[str, Field]


Field: TypeAlias = "int | float | Pointer | SharedStruct | dict[str, Field] | dict[str, int] | None"


class Direction(Enum):
    FORWARD = "forward"
    RECOMPUTE = "recompute"  # forward once more, during backward
    BACKWARD = "backward"


@dataclass(eq=False)
class OpSpec:
    kind: Kind
    name: str
    direction: Direction
    fields: Mapping[str, Field]
    flops: int = 0
    traffic: int = 0  # bytes of activations read and written, each tensor once

    def pointers(self) -> Iterator[Pointer]:
        return _pointers(self.fields)


def _pointers(fields: Mapping[str, Field]) -> Iterator[Pointer]:
    for value in fields.values():
        if type(value) is Pointer:
            yield value
        elif type(value) is SharedStruct:
            yield from _pointers(value.fields)
        elif type(value) is dict:  # not Mapping: the planner compares dozens of plans, and spends its time here
            yield from _pointers(value)


_FLOPS_PER_S, _BYTES_PER_S = 100e9, 10e9  # of a phone, or of two desktop cores


def estimate_seconds(ops: Iterable[OpSpec]) -> float:
    return sum(op.flops / _FLOPS_PER_S + op.traffic / _BYTES_PER_S for op in ops)
