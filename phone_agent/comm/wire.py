"""How numbers travel. A piece is a run of floats of the buffer; on the wire it is bytes.

Sums are always made in fp32, in the core and on the calling thread. Every element is encoded exactly once by a rank in
an allreduce, so what a coarse format rounds away can be kept beside the gradients and added the next time.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.team import Program, Team

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
BLOCK = 256  # numbers that share a scale, in the formats that have one: see core/src/wire.c
SCALE_BYTES = 4


class Span(NamedTuple):
    """An array, and where it lies: asking numpy takes as long as starting the core does, and a ring has many pieces."""

    array: NDArray[Any]
    at: int

    @classmethod
    def of(cls, array: NDArray[Any]) -> Span:
        return cls(array, array.ctypes.data)

    def part(self, piece: slice) -> Span:
        return Span(self.array[piece], self.at + piece.start * self.array.itemsize)

    @property
    def bytes(self) -> Span:
        return Span(self.array.view(np.uint8), self.at)


class Wire(Protocol):
    """`room` is scratch of `size(count)` bytes; what is returned lies in it, or in `values` where the wire is exact."""

    name: str
    exact: bool  # what is sent is the buffer itself, and what is finished may be received straight into it
    feedback: bool  # wants residuals

    def size(self, count: int) -> int:
        """Bytes that `count` floats take."""
        ...

    def encode(self, values: Span, residual: Span | None, room: Span) -> Span:
        """What to send for `values`."""
        ...

    def relay(self, arrived: Span, own: Span, residual: Span | None, room: Span) -> Span:
        """encode(own + what arrived). `own` may change on the way."""
        ...

    def add(self, arrived: Span, own: Span) -> None:
        """own += what arrived: nothing is sent yet."""
        ...

    def finish(self, arrived: Span, own: Span, residual: Span | None, room: Span) -> Span:
        """relay, and `own` becomes what everybody else will decode."""
        ...

    def take(self, arrived: Span, own: Span) -> None:
        """own = what arrived."""
        ...


class _Core:
    """The core's two ops for one number format, on the calling thread."""

    def __init__(self, number: ops.Number) -> None:
        self._team = Team(1)
        self._encode, self._decode = ops.Encode(number=number), ops.Decode(number=number)
        self._program = Program.of([(ops.Kind.ENCODE, self._encode), (ops.Kind.DECODE, self._decode)])
        self._run_encode = self._team.ready(self._program, 0, 1)
        self._run_decode = self._team.ready(self._program, 1, 2)

    def encode(
        self, values: Span, arrived: Span | None, residual: Span | None, room: Span, *, settle: bool = False
    ) -> Span:
        op = self._encode
        op.values, op.arrived, op.residual, op.target = values.at, _at(arrived), _at(residual), room.at
        op.count, op.settle = len(values.array), settle
        self._run_encode()
        return room

    def decode(self, arrived: Span, values: Span, *, accumulate: bool) -> None:
        op = self._decode
        op.source, op.values, op.count, op.accumulate = arrived.at, values.at, len(values.array), accumulate
        self._run_decode()


class Fp32:
    """The buffer's own bytes."""

    name = "fp32"
    exact = True
    feedback = False

    def __init__(self) -> None:
        self._core = _Core(ops.Number.FP32)

    def size(self, count: int) -> int:
        return 4 * count

    def encode(self, values: Span, residual: Span | None, room: Span) -> Span:
        del residual, room
        return values.bytes

    def relay(self, arrived: Span, own: Span, residual: Span | None, room: Span) -> Span:
        self.add(arrived, own)
        return self.encode(own, residual, room)

    def add(self, arrived: Span, own: Span) -> None:
        self._core.decode(arrived, own, accumulate=True)

    def finish(self, arrived: Span, own: Span, residual: Span | None, room: Span) -> Span:
        return self.relay(arrived, own, residual, room)

    def take(self, arrived: Span, own: Span) -> None:
        self._core.decode(arrived, own, accumulate=False)


class _Rounded:
    """Fewer bytes than the buffer's: numbers are rounded on their way."""

    exact = False
    feedback = False
    name: str
    number: ops.Number

    def __init__(self) -> None:
        self._core = _Core(self.number)

    def encode(self, values: Span, residual: Span | None, room: Span) -> Span:
        return self._core.encode(values, None, residual, room)

    def relay(self, arrived: Span, own: Span, residual: Span | None, room: Span) -> Span:
        return self._core.encode(own, arrived, residual, room)

    def add(self, arrived: Span, own: Span) -> None:
        self._core.decode(arrived, own, accumulate=True)

    def finish(self, arrived: Span, own: Span, residual: Span | None, room: Span) -> Span:
        return self._core.encode(own, arrived, residual, room, settle=True)

    def take(self, arrived: Span, own: Span) -> None:
        self._core.decode(arrived, own, accumulate=False)


class Fp16(_Rounded):
    """11 bits of precision, and a power of two a block: neither overflow nor underflow, wherever gradients lie."""

    name = "fp16"
    number = ops.Number.FP16

    def size(self, count: int) -> int:
        return 2 * count + _scales(count)


class Bf16(_Rounded):
    """8 bits of precision and fp32's range."""

    name = "bf16"
    number = ops.Number.BF16

    def size(self, count: int) -> int:
        return 2 * count


class Int8(_Rounded):
    """A sign and 127 steps to the largest number of a block. Too coarse to lose the rest: it wants residuals."""

    name = "int8"
    feedback = True
    number = ops.Number.INT8

    def size(self, count: int) -> int:
        return count + _scales(count)


def fitting(wire: Wire, room_bytes: int) -> int:
    """How many floats travel in so many bytes; whole blocks, where there is one."""
    count = max(1, room_bytes * BLOCK // wire.size(BLOCK))
    return count - count % BLOCK or count


def _scales(count: int) -> int:
    return SCALE_BYTES * -(-count // BLOCK)


def _at(span: Span | None) -> int | None:
    return None if span is None else span.at


WIRES: dict[str, type[Wire]] = {"fp32": Fp32, "fp16": Fp16, "bf16": Bf16, "int8": Int8}
