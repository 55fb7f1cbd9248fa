"""How numbers travel. A piece is a run of floats of the buffer; on the wire it is bytes: core/src/wire.c.

Sums are always made in fp32, in the core and on the calling thread. Every element is encoded exactly once by a rank in
an allreduce, so what a coarse format rounds away can be kept beside the gradients and added the next time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.thread_pool import Program, ThreadPool

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
BLOCK = 256  # numbers that share a scale, in the formats that have one
SCALE_BYTES = 4


@dataclass(frozen=True)
class Wire:
    """`feedback`: too coarse to lose what is rounded away, it wants residuals."""

    name: str
    dtype: ops.DType
    number_bytes: int
    scaled: bool = False
    feedback: bool = False

    @property
    def exact(self) -> bool:
        """What is sent is the buffer itself, and what is finished is received straight into it."""
        return self.dtype is ops.DType.FP32

    def size(self, count: int) -> int:
        """Bytes that `count` floats take."""
        return self.number_bytes * count + (SCALE_BYTES * -(-count // BLOCK) if self.scaled else 0)


FP32 = Wire("fp32", ops.DType.FP32, 4)
# 11 bits of precision, and a power of two a block: neither overflow nor underflow, wherever gradients lie.
FP16 = Wire("fp16", ops.DType.FP16, 2, scaled=True)
# 8 bits of precision and fp32's range.
BF16 = Wire("bf16", ops.DType.BF16, 2)
# A sign and 127 steps to the largest number of a block.
INT8 = Wire("int8", ops.DType.INT8, 1, scaled=True, feedback=True)
WIRES = {wire.name: wire for wire in (FP32, FP16, BF16, INT8)}


def fitting(wire: Wire, room_bytes: int) -> int:
    """How many floats travel in so many bytes; whole blocks, where there is one."""
    count = max(1, room_bytes * BLOCK // wire.size(BLOCK))
    return count - count % BLOCK or count


class Coder:
    """What rings do to a piece, by itself."""

    def __init__(self, wire: Wire) -> None:
        self._pool = ThreadPool(1)
        self._encode, self._decode = ops.Encode(dtype=wire.dtype), ops.Decode(dtype=wire.dtype)

    def encode(
        self, values: Floats, to: Bytes, arrived: Bytes | None = None, residual: Floats | None = None,
        *, write_back: bool = False,
    ) -> None:  # fmt: skip
        """Encode values + decoded `arrived` (which may be `to`) + residual; residual becomes the rounding error.

        `write_back`: values become what every receiver will decode.
        """
        op = self._encode
        op.values, op.encoded, op.received, op.residual = _at(values), _at(to), _at(arrived), _at(residual)
        op.count, op.write_back = values.size, write_back
        self._run(ops.Kind.ENCODE, op)

    def decode(self, arrived: Bytes, values: Floats, *, accumulate: bool = False) -> None:
        """values (+)= decoded `arrived`."""
        op = self._decode
        op.encoded, op.values, op.count, op.accumulate = _at(arrived), _at(values), values.size, accumulate
        self._run(ops.Kind.DECODE, op)

    def _run(self, kind: ops.Kind, op: ops.Encode | ops.Decode) -> None:
        self._pool.run(Program.of([(kind, op)]))


def _at(array: NDArray[Any] | None) -> int | None:
    return None if array is None else int(array.ctypes.data)
