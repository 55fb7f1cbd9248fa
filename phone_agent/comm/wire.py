"""How numbers travel. A piece is a run of floats of the buffer; on the wire it is bytes.

Sums are always made in fp32, in the core and on the calling thread. Every element is encoded exactly once by a rank in
an allreduce, so what a coarse format rounds away can be kept beside the gradients and added the next time.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.team import Program, Team

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class Wire(Protocol):
    """`room` is scratch of `size(count)` bytes; what is returned lies in it, or in `values` where the wire is exact."""

    name: str
    exact: bool  # what is sent is the buffer itself, and what is finished may be received straight into it
    feedback: bool  # wants residuals

    def size(self, count: int) -> int:
        """Bytes that `count` floats take."""
        ...

    def encode(self, values: Floats, residual: Floats | None, room: Bytes) -> Bytes:
        """What to send for `values`."""
        ...

    def relay(self, arrived: Bytes, own: Floats, residual: Floats | None, room: Bytes) -> Bytes:
        """encode(own + what arrived). `own` may change on the way."""
        ...

    def add(self, arrived: Bytes, own: Floats) -> None:
        """own += what arrived: nothing is sent yet."""
        ...

    def settle(self, values: Floats, residual: Floats | None, room: Bytes) -> Bytes:
        """encode, and `values` become what everybody else will decode."""
        ...

    def take(self, arrived: Bytes, own: Floats) -> None:
        """own = what arrived."""
        ...


class Fp32:
    """The buffer's own bytes."""

    name = "fp32"
    exact = True
    feedback = False

    def __init__(self) -> None:
        self._team = Team(1)
        self._sum = ops.Reduce(number_to=ops.Number.FP32, number_from=ops.Number.FP32)
        self._program = Program.of([(ops.Kind.REDUCE, self._sum)])

    def size(self, count: int) -> int:
        return 4 * count

    def encode(self, values: Floats, residual: Floats | None, room: Bytes) -> Bytes:
        del residual, room
        return values.view(np.uint8)

    def relay(self, arrived: Bytes, own: Floats, residual: Floats | None, room: Bytes) -> Bytes:
        self.add(arrived, own)
        return self.encode(own, residual, room)

    def add(self, arrived: Bytes, own: Floats) -> None:
        self._sum.target, self._sum.source, self._sum.count = own.ctypes.data, arrived.ctypes.data, own.size
        self._team.run(self._program)

    def settle(self, values: Floats, residual: Floats | None, room: Bytes) -> Bytes:
        return self.encode(values, residual, room)

    def take(self, arrived: Bytes, own: Floats) -> None:
        own.view(np.uint8)[...] = arrived


WIRES: dict[str, type[Wire]] = {"fp32": Fp32}
