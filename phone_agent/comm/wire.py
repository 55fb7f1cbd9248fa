"""Wire formats: how a piece (a run of floats in the buffer) is encoded as bytes. See core/src/wire.c.

Sums are always in fp32, in the core and on the calling thread. In an allreduce every rank encodes each element exactly
once, so what a coarse format rounds away can be kept beside the gradients and added next time (error feedback).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import BadRequestError
from phone_agent.core import ops
from phone_agent.core.thread_pool import Program, ThreadPool

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
BLOCK = 256  # numbers that share a scale, in formats that have scales
SCALE_BYTES = 4


@dataclass(frozen=True)
class Wire:
    """`error_feedback`: so coarse that training needs residuals."""

    name: str
    dtype: ops.DType
    number_bytes: int
    scaled: bool = False
    error_feedback: bool = False

    @property
    def exact(self) -> bool:
        """The buffer itself is sent, and finished pieces are received straight into it."""
        return self.dtype is ops.DType.FP32

    def size(self, count: int) -> int:
        """Bytes of `count` encoded floats."""
        return self.number_bytes * count + (SCALE_BYTES * -(-count // BLOCK) if self.scaled else 0)


FP32 = Wire("fp32", ops.DType.FP32, 4)
# 11 bits of precision, and a power-of-two scale per block: gradients of any size neither overflow nor underflow.
FP16 = Wire("fp16", ops.DType.FP16, 2, scaled=True)
# 8 bits of precision and the range of fp32.
BF16 = Wire("bf16", ops.DType.BF16, 2)
# A sign and 127 steps up to the largest number of the block.
INT8 = Wire("int8", ops.DType.INT8, 1, scaled=True, error_feedback=True)
WIRE_FORMATS = {wire.name: wire for wire in (FP32, FP16, BF16, INT8)}


def wire_format(name: str) -> Wire:
    if name not in WIRE_FORMATS:
        raise BadRequestError(f"unknown wire format '{name}'; choose from: {', '.join(WIRE_FORMATS)}")
    return WIRE_FORMATS[name]


def floats_in(wire: Wire, max_bytes: int) -> int:
    """How many floats fit in `max_bytes` on the wire; whole blocks, if at least one fits."""
    count = max(1, max_bytes * BLOCK // wire.size(BLOCK))
    return count - count % BLOCK or count


class WireCodec:
    """Encodes and decodes single pieces, as a ring does in each hop."""

    def __init__(self, wire: Wire) -> None:
        self._pool = ThreadPool(1)
        self._encode, self._decode = ops.Encode(dtype=wire.dtype), ops.Decode(dtype=wire.dtype)

    def encode(
        self, values: Floats, to: Bytes, arrived: Bytes | None = None, residual: Floats | None = None,
        *, write_back: bool = False,
    ) -> None:  # fmt: skip
        """to = encode(values + arrived + residual); the residual becomes the rounding error. `to` may be `arrived`.

        `write_back`: values become what every other rank will decode.
        """
        op = self._encode
        op.values, op.encoded, op.received, op.residual = _at(values), _at(to), _at(arrived), _at(residual)
        op.count, op.write_back = values.size, write_back
        self._run(ops.Kind.ENCODE, op)

    def decode(self, arrived: Bytes, values: Floats, *, accumulate: bool = False) -> None:
        """values = decode(arrived), or values += decode(arrived)."""
        op = self._decode
        op.encoded, op.values, op.count, op.accumulate = _at(arrived), _at(values), values.size, accumulate
        self._run(ops.Kind.DECODE, op)

    def _run(self, kind: ops.Kind, op: ops.Encode | ops.Decode) -> None:
        self._pool.run(Program.of([(kind, op)]))


def _at(array: NDArray[Any] | None) -> int | None:
    return None if array is None else int(array.ctypes.data)


class Residuals:
    """Residuals of every buffer that a collective sums. Empty for wire formats without error feedback."""

    def __init__(self, wire: Wire) -> None:
        self._enabled = wire.error_feedback
        self._by_buffer: dict[tuple[int, int], Floats] = {}
        self._attached: tuple[Floats, Floats] | None = None

    def attach(self, gradients: Floats) -> Floats | None:
        """Keep the residuals of all parts of `gradients` in one buffer, so that it can be checkpointed.

        None if the wire format needs no error feedback.
        """
        if not self._enabled:
            return None
        self._attached = (gradients, np.zeros_like(gradients))
        return self._attached[1]

    def of(self, buffer: Floats) -> Floats | None:
        """The residual of this buffer, by address and length: training sums the same slices in every step."""
        if not self._enabled:
            return None
        key = (buffer.ctypes.data, buffer.size)
        if self._attached is not None and np.may_share_memory(buffer, self._attached[0]):
            start = (key[0] - self._attached[0].ctypes.data) // buffer.itemsize
            return self._attached[1][start : start + buffer.size]
        if key not in self._by_buffer:
            self._by_buffer[key] = np.zeros(buffer.size, np.float32)
        return self._by_buffer[key]


def flush_residual(residual: Floats, gradients: Floats) -> None:
    """Add all of the residual to the gradients and clear it. For a single rank, which rounds nothing.

    The residual is not kept for when other ranks return: by then it would correct values that are long gone, and the
    returning ranks start without residuals as well.
    """
    gradients += residual
    residual[...] = 0
