"""How many images each phone takes per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from phone_agent.api.memory import Options
    from phone_agent.api.models import Graph

DEFAULT_BATCH = 32
ROUNDED = 64 * 1024 * 1024  # bytes: phones with about the same memory free take the same batch


def split_batches(phones: int, per_phone: int | None, total: int | None) -> tuple[int, ...]:
    """One batch a phone in ring order: the same on each, or a global batch cut as evenly as it goes."""
    if per_phone is not None and total is not None:
        raise UsageError("--batch and --global-batch exclude each other", remedy="give only one of them")
    if total is None:
        return (DEFAULT_BATCH if per_phone is None else per_phone,) * phones
    if total < phones:
        raise UsageError(
            f"a global batch of {total} leaves some of {phones} phones without an image",
            remedy=f"--global-batch {phones} or more, or fewer phones with --limit",
        )
    share, extra = divmod(total, phones)
    return tuple(share + (rank < extra) for rank in range(phones))


def largest_batches(graph: Graph, budgets: Sequence[int], options: Sequence[Options]) -> tuple[int, ...]:
    """As much as each phone's memory holds without arithmetic done twice. `options`: of each phone's plan."""
    from phone_agent.api.memory import largest_batch
    from phone_agent.contract.errors import AgentError

    rounded = [max(budget // ROUNDED * ROUNDED, min(budget, ROUNDED)) for budget in budgets]
    try:
        asked = list(zip(rounded, options, strict=True))
        found = {each: largest_batch(graph, *each) for each in set(asked)}
    except AgentError as error:
        raise UsageError(str(error), remedy=getattr(error, "remedy", None) or "--batch, as a number") from None
    return tuple(found[each] for each in asked)
