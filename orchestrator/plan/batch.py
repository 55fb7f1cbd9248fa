"""Batch size per phone, and other splits of images among phones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from phone_agent.api.memory import Options
    from phone_agent.api.models import Graph

TWO_VALUES = "A batch normalization over 1x1 pixels needs at least 2 images at a time"
ROUNDING_BYTES = 64 * 1024 * 1024  # phones with about the same free memory get the same batch


def split_global_batch(total: int, phones: int, smallest: int = 1) -> tuple[int, ...]:
    """One batch per phone, as even as possible. `smallest`: see Graph.min_batch."""
    if total < phones * smallest:
        least = "one image" if smallest == 1 else f"{smallest} images"
        reason = "" if smallest == 1 else f". {TWO_VALUES}"
        raise UsageError(
            f"--global-batch {total} is less than {least} per phone ({phones} phones){reason}",
            remedy=f"--global-batch {phones * smallest} or more, or fewer phones with --limit",
        )
    each, extra = divmod(total, phones)
    return tuple(each + (rank < extra) for rank in range(phones))


def largest_batches(graph: Graph, budgets: Sequence[int], options: Sequence[Options]) -> tuple[int, ...]:
    """The largest batch that each phone can hold without recomputation. `options`: of the plan of each phone."""
    from phone_agent.api.memory import largest_batch
    from phone_agent.contract.errors import AgentError

    rounded = [max(budget // ROUNDING_BYTES * ROUNDING_BYTES, min(budget, ROUNDING_BYTES)) for budget in budgets]
    phones = list(zip(rounded, options, strict=True))
    try:
        batches = {each: largest_batch(graph, *each) for each in set(phones)}
    except AgentError as error:
        raise UsageError(str(error), remedy=getattr(error, "remedy", None) or "--batch with a number") from None
    return tuple(batches[each] for each in phones)


def apportion(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """In proportion to the weights, by the largest remainder method. Integer weights that add up to `total` stay."""
    parts = [Fraction(weight) for weight in weights]
    exact = [total * part / sum(parts) for part in parts]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda rank: (counts[rank] - exact[rank], rank))
    for rank in by_remainder[: total - sum(counts)]:
        counts[rank] += 1
    return tuple(counts)


def apportion_at_least(least: int, total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """In proportion to the weights, but at least `least` for each."""
    counts = list(apportion(total, weights))
    while min(counts) < least:
        counts[counts.index(max(counts))] -= 1
        counts[counts.index(min(counts))] += 1
    return tuple(counts)
