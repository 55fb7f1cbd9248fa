"""A number of images among phones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def apportion(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """In proportion, by largest remainder. Whole weights that add up to it stay as they are."""
    parts = [Fraction(weight) for weight in weights]
    exact = [total * part / sum(parts) for part in parts]
    whole = [int(share) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda rank: (whole[rank] - exact[rank], rank))
    for rank in by_rest[: total - sum(whole)]:
        whole[rank] += 1
    return tuple(whole)


def deal(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """In proportion, one each at least."""
    whole = list(apportion(total, weights))
    while 0 in whole:
        whole[whole.index(max(whole))] -= 1
        whole[whole.index(0)] += 1
    return tuple(whole)
