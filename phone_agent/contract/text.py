"""Text from another computer, made safe to show on a terminal.

A log or a reply may contain escape sequences that rename the window, move the cursor or reverse the text direction.
Everything that came from a phone passes through `one_line` or `lines` before it is shown.
"""

from __future__ import annotations

import unicodedata

_ELLIPSIS = "…"
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: str, limit: int = 400) -> str:
    """`text` as one harmless line of at most `limit` characters; unsafe characters are shown as escapes."""
    head = text[: limit + 1]  # cut first: the line may be endless
    shown = head if head.isascii() and head.isprintable() else "".join(map(_visible, head))
    return shown if len(shown) <= limit else shown[: limit - 1] + _ELLIPSIS


def lines(text: str, limit: int = 4000) -> str:
    """The same, with line breaks."""
    return "\n".join(one_line(line, limit) for line in text[:limit].split("\n"))


def last_lines(text: str, count: int = 5, width: int = 500) -> str:
    """The last lines of a command's output, which usually say why it failed."""
    found = text[-count * width * 2 :].strip().splitlines()[-count:]
    return "\n".join(one_line(line[-width:], 4 * width) for line in found)


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if character == "\t" or category == "Zs":  # spaces of every kind
        return " "
    if category not in _UNSAFE_CATEGORIES:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
