"""Splits a number of images among phones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def apportion(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """In proportion to the weights, by the largest remainder method. Integer weights that add up to `total` stay."""
    parts = [Fraction(weight) for weight in weights]
    exact = [total * part / sum(parts) for part in parts]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda rank: (counts[rank] - exact[rank], rank))
    for rank in by_remainder[: total - sum(counts)]:
        counts[rank] += 1
    return tuple(counts)


def apportion_at_least_one(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """In proportion to the weights, but at least 1 for each."""
    counts = list(apportion(total, weights))
    while 0 in counts:
        counts[counts.index(max(counts))] -= 1
        counts[counts.index(0)] += 1
    return tuple(counts)
