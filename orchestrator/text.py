"""Text for people: safe to show on a terminal, with correct plurals.

A phone's log is data from another computer: it may contain escape sequences that rename the window, move the cursor
or reverse the text direction. Everything that came from a phone passes through `one_line` before it is shown.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sized

_ELLIPSIS = "…"
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: str, limit: int = 400) -> str:
    """`text` as one harmless line of at most `limit` characters; unsafe characters are shown as escapes."""
    head = text[: limit + 1]  # cut first: the line may be endless
    shown = head if head.isascii() and head.isprintable() else "".join(map(_visible, head))
    return shown if len(shown) <= limit else shown[: limit - 1] + _ELLIPSIS


def count_of(things: Sized | int, noun: str) -> str:
    """`1 phone`, `4 phones`, `2 switches`."""
    count = things if isinstance(things, int) else len(things)
    plural = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{plural}"


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if character == "\t" or category == "Zs":  # spaces of every kind
        return " "
    if category not in _UNSAFE_CATEGORIES:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
