"""Tables where there is no terminal: a pipe has no width, so they get one that fits them."""

from __future__ import annotations

from rich.console import Console

WIDTH = 120
HEIGHT = 1000  # nothing needs to fit on a screen


def wide_enough(console: Console) -> Console:
    return console if console.is_terminal else Console(file=console.file, width=WIDTH, height=HEIGHT, highlight=False)
