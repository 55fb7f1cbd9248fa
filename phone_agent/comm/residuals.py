"""Error feedback: what a coarse wire format rounds away is kept and added to the next sum of the same gradients."""

from __future__ import annotations

import numpy as np

from phone_agent.comm.wire import Floats, Wire


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
