"""Groups of phones as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone


def format_phones(phones: Sequence[Phone]) -> str:
    """One phone by name, several as a compact selector: sw1:1-8."""
    return phones[0].name if len(phones) == 1 else fold(phones)


def group_by_message(items: Iterable[tuple[Phone, str]]) -> dict[str, list[Phone]]:
    """Phones with the same message together, so that it is printed once."""
    groups: dict[str, list[Phone]] = {}
    for phone, message in items:
        groups.setdefault(message, []).append(phone)
    return groups
