"""Random numbers that are the same on every phone: a counter hashed by SplitMix64.

numpy's own generators may change from version to version, and phones need not all have the same one. Here number i
of a stream depends on the stream's key and i alone, so any part of a stream can be had without the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def bits(key: tuple[int, ...], count: int, start: int = 0) -> NDArray[np.uint64]:
    """Numbers `start` to `start + count` of the stream: 64 random bits each."""
    return bits_at(key, np.arange(start, start + count, dtype=np.uint64))


def bits_at(key: tuple[int, ...], places: NDArray[Any]) -> NDArray[np.uint64]:
    """The numbers of the stream at these positions."""
    return _mix(_fold(key) + (places.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def uniform(key: tuple[int, ...], count: int, start: int = 0) -> NDArray[np.float64]:
    """In [0, 1), exact in double precision on every machine."""
    return _fractions(bits(key, count, start))


def uniform_at(key: tuple[int, ...], places: NDArray[Any]) -> NDArray[np.float64]:
    return _fractions(bits_at(key, places))


def permutation(key: tuple[int, ...], count: int) -> NDArray[np.int64]:
    return np.argsort(bits(key, count), kind="stable").astype(np.int64, copy=False)


def _fractions(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _fold(key: tuple[int, ...]) -> NDArray[np.uint64]:
    state = np.zeros(1, np.uint64)
    for part in key:
        state = _mix(state + GOLDEN + np.uint64(part))
    return state


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
