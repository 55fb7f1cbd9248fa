"""Suggestions for misspelled names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches


def suggestion(word: str, known: Sequence[str]) -> str:
    """ "; did you mean 'p1-07'?" for p1-7, or nothing.

    A different number is a different name, not a misspelling: p1-99 does not suggest p1-39.
    """
    same = [one for one in known if _plain(one) == _plain(word)]
    close = [one for one in get_close_matches(word, known, n=5) if _letters(one) != _letters(word)]
    return f"; did you mean '{(same or close)[0]}'?" if same or close else ""


def listing(names: Sequence[str], most: int = 8) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _plain(text: str) -> str:
    """Without case and leading zeros."""
    return re.sub(r"0+(?=[0-9])", "", text.lower())


def _letters(text: str) -> str:
    return re.sub(r"[0-9]", "", text)
