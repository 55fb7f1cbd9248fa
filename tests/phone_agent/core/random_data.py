"""Random data for cases."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class RandomData:
    """Random data that depend only on the case's name. `half`: values that fp16 can represent."""

    def __init__(self, name: str, *, half: bool = False) -> None:
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._type = np.float16 if half else np.float32

    def rounded(self, values: Array) -> Array:
        """Rounded to the storage type, so that oracle and core start from the same values."""
        return values.astype(self._type).astype(np.float64)

    def normal(self, *shape: int) -> Array:
        return self.rounded(self._rng.standard_normal(shape))

    def positive(self, *shape: int) -> Array:
        return np.abs(self.normal(*shape)) + 0.5

    def eighths(self, *shape: int) -> Array:
        """Values with so few bits that float32 arithmetic on them is exact."""
        return self._rng.integers(-64, 65, shape) / 8

    def choice(self, values: list[float], *shape: int) -> Array:
        return self._rng.choice(values, shape)

    def integers(self, low: int, high: int, *shape: int) -> Array:
        return self._rng.integers(low, high, shape)
