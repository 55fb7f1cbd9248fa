"""Sanitize output from phones for use in messages."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace control characters, which could manipulate a terminal. Line breaks stay."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def last_lines(text: str, count: int = 5, width: int = 500) -> str:
    """The last lines of a command's output, which usually say why it failed."""
    return printable("\n".join(line[-width:] for line in text[-count * width * 2 :].strip().splitlines()[-count:]))
