"""How many images each phone takes per step."""

from __future__ import annotations

from orchestrator.errors import UsageError

DEFAULT_BATCH = 32


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
