"""The two consoles: results go to stdout; progress, notes and errors go to stderr.

So `--json` leaves one JSON document on stdout and nothing else.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape

from orchestrator.errors import ClusterctlError
from orchestrator.text import one_line

out = Console(highlight=False, soft_wrap=False)
err = Console(stderr=True, highlight=False)


def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")


def note(message: str) -> None:
    err.print(message, style="dim", markup=False)


def warn(message: str) -> None:
    err.print(f"[yellow]warning:[/] {escape(message)}")


def next_step(command: str, why: str = "next") -> None:
    """Ends a report with the command to run next."""
    err.print(f"[dim]{escape(why)}:[/] [bold]{escape(command)}[/]", soft_wrap=True)


def print_error(error: ClusterctlError) -> None:
    """Each line is made safe to show: a message may quote a phone."""
    message = "\n".join(one_line(line, 2000) for line in error.message.splitlines())
    err.print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True)
    if error.remedy:
        next_step(error.remedy, "try")
