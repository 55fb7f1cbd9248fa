"""Progress of work that takes more than a moment: on stderr, on a terminal only, after a short delay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.live import Live
from rich.text import Text

from orchestrator.format import format_clock
from orchestrator.inventory.model import Phone
from orchestrator.text import count_of
from orchestrator.view.console import err

_DELAY_S = 0.8
_MAX_NAMES = 6


@contextmanager
def delayed_line(draw: Callable[[], str]) -> Iterator[None]:
    """Shows one line, redrawn in place, once the work has taken longer than the delay."""
    started = time.monotonic()

    def render() -> Text:
        late = time.monotonic() - started >= _DELAY_S
        return Text(draw(), "dim", no_wrap=True, overflow="ellipsis") if late else Text()

    if not err.is_terminal:
        yield
        return
    with Live(console=err, get_renderable=render, transient=True, refresh_per_second=5):
        yield


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Shows what is being done and for how long. The callback changes the text."""
    started = time.monotonic()
    shown = what

    def change(text: str) -> None:
        nonlocal shown
        shown = text

    with delayed_line(lambda: f"{shown} … {format_clock(time.monotonic() - started)}"):
        yield change


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """`working` for what may compile the compute core: shows how many files are done."""
    from phone_agent.api.bundle import compile_progress

    with working(what) as change:

        def compiled(done: int, total: int) -> None:
            change(what if done == total else format_compiling(done, total))

        with compile_progress(compiled):
            yield


@contextmanager
def computing(what: str) -> Iterator[None]:
    """`working` for what runs the compute core on this computer. The core is compiled first, if necessary."""
    from phone_agent.api.bundle import compile_core

    with compiling(what):
        compile_core()
        yield


def format_compiling(done: int, total: int) -> str:
    return f"compiling the compute core (only once): {done} of {total} files"


@contextmanager
def phone_progress(what: str, phones: Sequence[Phone]) -> Iterator[Callable[[Any], None]]:
    """Counts phones, and names those that have not answered. The callback takes each phone's outcome."""
    left = {phone.name: None for phone in phones}

    def draw() -> str:
        if not left:
            return ""
        names = ", ".join(list(left)[:_MAX_NAMES]) + (", …" if len(left) > _MAX_NAMES else "")
        return f"{what} {count_of(phones, 'phone')}: {len(phones) - len(left)} done, waiting for {names}"

    with delayed_line(draw):
        yield lambda outcome: left.pop(outcome.phone.name, None)
