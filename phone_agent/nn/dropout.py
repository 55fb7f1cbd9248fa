"""Dropout mask: the hash of src/dropout.c in numpy, bit for bit.

All arithmetic is on 32 bits and wraps:

    mix(x):    x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x *= 0x846ca68b;  x ^= x >> 16
    key        = mix(low 32 bits of draw + 0x9E3779B9 * salt) ^ mix(high 32 bits of draw + salt)
    threshold  = rate (a float32) * 2^32, rounded down, at most 2^32 - 1
    element i  is kept where mix(low 32 bits of i ^ key) >= threshold
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = 0xFFFFFFFF


def keep_mask(count: int, rate: float, draw: int, salt: int) -> NDArray[np.bool_]:
    """Whether each of `count` elements is kept. `draw` differs by step, `salt` by layer."""
    key = _mix_one((draw & _MASK) + 0x9E3779B9 * salt) ^ _mix_one(((draw >> 32) & _MASK) + salt)
    threshold = min(int(float(np.float32(rate)) * 2**32), _MASK)
    positions = np.arange(count, dtype=np.int64).astype(np.uint32)
    return _mix(positions ^ np.uint32(key)) >= np.uint32(threshold)


def _mix_one(x: int) -> int:
    return int(_mix(np.array([x & _MASK], np.uint32))[0])


def _mix(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
