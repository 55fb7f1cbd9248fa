"""Who is still awaited: shown on a terminal when it takes a while, and never elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.live import Live
from rich.text import Text

from orchestrator.inventory.model import Phone
from orchestrator.text import count_of
from orchestrator.view.console import err

_DELAY_S = 0.8
_NAMED = 6


@contextmanager
def counting(what: str, phones: Sequence[Phone]) -> Iterator[Callable[[Any], None]]:
    """Gives a callback for each outcome; draws `what` and the phones that are left."""
    left = {phone.name: None for phone in phones}
    started = time.monotonic()

    def draw() -> Text:
        if not left or time.monotonic() - started < _DELAY_S:
            return Text()
        names = ", ".join(list(left)[:_NAMED]) + (", …" if len(left) > _NAMED else "")
        return Text(
            f"{what} {count_of(phones, 'phone')}: {len(phones) - len(left)} done, left: {names}", "dim", no_wrap=True
        )

    if not err.is_terminal:
        yield lambda _outcome: None
        return
    with Live(console=err, get_renderable=draw, transient=True, refresh_per_second=5):
        yield lambda outcome: left.pop(outcome.phone.name, None)
