"""Help that every command shares: `-h`, example blocks, and the panel of expert flags."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import typer

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


def join_help_lines(app: typer.Typer) -> None:
    """Join the lines of each docstring paragraph: Typer keeps line breaks, which leave short lines when wrapped."""
    for command in app.registered_commands:
        paragraphs = inspect.cleandoc(command.callback.__doc__ or "").split("\n\n") if command.callback else []
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def examples_of(command: Callable[..., Any]) -> str | None:
    return command.__dict__.get("examples")
