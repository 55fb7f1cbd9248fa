"""Consoles of a known size, and what was drawn on them."""

from __future__ import annotations

import io

from rich.console import Console


def screen(width: int = 120, height: int = 45) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)


def drawn(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]
