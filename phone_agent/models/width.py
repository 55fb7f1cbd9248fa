"""Wider and narrower networks."""

from __future__ import annotations


def scale_channels(channels: int, width: float) -> int:
    """A multiple of 8 near channels x width, never a tenth below it: MobileNet-v2's rule. Exact where width is 1."""
    if width == 1.0:
        return channels
    wanted = channels * width
    nearest = max(8, int(wanted + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * wanted else nearest
