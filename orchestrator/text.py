"""Text for people: safe to show on a terminal, with correct plurals."""

from __future__ import annotations

from collections.abc import Sized

from phone_agent.contract.text import one_line

__all__ = ["count_of", "one_line"]


def count_of(things: Sized | int, noun: str) -> str:
    """`1 phone`, `4 phones`, `2 switches`."""
    count = things if isinstance(things, int) else len(things)
    plural = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{plural}"
