"""What a phone said, fit to stand in one of our messages."""

from __future__ import annotations


def printable(text: str) -> str:
    """Without control characters: an error message must not be able to drive a terminal. Line breaks stay."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def last_lines(text: str, count: int = 5, width: int = 500) -> str:
    """The end of a command's output, where it says why it failed."""
    return printable("\n".join(line[-width:] for line in text[-count * width * 2 :].strip().splitlines()[-count:]))
