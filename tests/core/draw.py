"""Numbers for cases."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Draw:
    """Random numbers that follow from a case's name alone."""

    def __init__(self, name: str) -> None:
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))

    def normal(self, *shape: int) -> Array:
        """Rounded to float32, so that oracle and core start from the same numbers."""
        return self._rng.standard_normal(shape).astype(np.float32).astype(np.float64)

    def positive(self, *shape: int) -> Array:
        return np.abs(self.normal(*shape)) + 0.5

    def eighths(self, *shape: int) -> Array:
        """Few enough bits that float32 computes with them exactly."""
        return self._rng.integers(-64, 65, shape) / 8

    def choice(self, values: list[float], *shape: int) -> Array:
        return self._rng.choice(values, shape)

    def integers(self, low: int, high: int, *shape: int) -> Array:
        return self._rng.integers(low, high, shape)
