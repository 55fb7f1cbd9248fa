"""Width multiplier."""

from __future__ import annotations


def scale_channels(channels: int, width: float) -> int:
    """channels * width, rounded to a multiple of 8, at most 10 % down, as in MobileNet-v2. Exact for width 1."""
    if width == 1.0:
        return channels
    exact = channels * width
    nearest = max(8, int(exact + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * exact else nearest
