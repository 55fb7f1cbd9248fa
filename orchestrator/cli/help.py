"""Help that every command shares: `-h`, example blocks, and the panel of expert flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
EXPERT = "Expert options"  # the last panel of a command's help

Command = TypeVar("Command", bound=Callable[..., Any])


def format_examples(*lines: str) -> str:
    """The epilog of a command. A line that starts with # is a comment."""
    shown = [f"[dim]{line}[/]" if line.startswith("#") else line.replace("[", r"\[") for line in lines]
    return "\n".join(["[bold]Examples[/]", *shown])


def examples(*lines: str) -> Callable[[Command], Command]:
    """Attaches the example block of a top-level command."""

    def attach(command: Command) -> Command:
        command.__dict__["examples"] = format_examples(*lines)
        return command

    return attach


def examples_of(command: Callable[..., Any]) -> str | None:
    return command.__dict__.get("examples")
