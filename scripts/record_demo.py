"""Record a real `make demo` as an SVG picture of a terminal.

    python scripts/record_demo.py docs/assets/demo.svg

Runs scripts/demo.sh in a pseudo-terminal, lets a terminal emulator (pyte) interpret what it prints, and draws the
resulting lines with Rich.
"""

from __future__ import annotations

import argparse
import os
import pty
import struct
import sys
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS = 96
HISTORY = 400  # lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("command", nargs="*", default=["scripts/demo.sh"])
    arguments = parser.parse_args()
    screen = _run(arguments.command)
    console = Console(record=True, width=COLUMNS, file=Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    for line in _lines(screen):
        console.print(line, no_wrap=True, soft_wrap=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(console.export_svg(title="make demo"), encoding="utf-8")


def _run(command: list[str]) -> pyte.Screen:
    """The screen, tall enough for all output, after the command has ended."""
    screen = pyte.Screen(COLUMNS, HISTORY)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
        os.execvp(command[0], command)  # noqa: S606
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the command closed its terminal
            break
        if not data:
            break
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        stream.feed(data)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise SystemExit(f"{command[0]} failed with status {status}")
    return screen


def _lines(screen: pyte.Screen) -> list[Text]:
    lines = [_line(screen.buffer[row]) for row in range(screen.lines)]
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def _line(row: Mapping[int, pyte.screens.Char]) -> Text:
    text = Text()
    for column in range(COLUMNS):
        cell = row[column]
        text.append(cell.data, Style(color=_color(cell.fg), bold=cell.bold, reverse=cell.reverse, dim=False))
    text.rstrip()
    return text


def _color(name: str) -> str | None:
    if name == "default":
        return None
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    return {"brown": "yellow"}.get(name, name.replace("bright", "bright_"))


if __name__ == "__main__":
    main()
