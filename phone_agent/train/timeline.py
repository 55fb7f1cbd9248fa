"""Timeline of a rank: the last spans of both its threads, kept in memory and written once at the end."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from phone_agent.comm.world import World

MAX_SPANS = 1 << 15  # a few megabytes: hundreds of steps of a small network, about ten of a large one
ROUNDS = 16


class Timeline:
    """Times are of this phone's monotonic clock. Safe to call from any thread.

    Spans of the compute thread: data, forward, backward, wait. Of the communication thread: reduce, update, exchange;
    and inside a reduce: send and receive (waiting for either), add (with encoding and decoding).
    """

    def __init__(self, max_spans: int = MAX_SPANS) -> None:
        self.spans: deque[tuple[str, int, float, float]] = deque(maxlen=max_spans)
        self.reducing = 0  # the step whose gradients are being reduced

    def add(self, kind: str, step: int, started: float, ended: float) -> None:
        self.spans.append((kind, step, started, ended))

    def note(self, what: str, started: float, ended: float) -> None:
        """A span inside a reduce, reported by a collective."""
        self.spans.append(("add" if what == "reduce" else what, self.reducing, started, ended))

    def write(self, path: Path, **header: Any) -> None:
        """A header line, then one line per span: kind, step, start, end."""
        with path.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in self._lines(header))

    def _lines(self, header: dict[str, Any]) -> Iterator[str]:
        yield json.dumps(header)
        for kind, step, started, ended in tuple(self.spans):
            yield json.dumps([kind, step, round(started, 6), round(ended, 6)])


def clock_offset(world: World, rounds: int = ROUNDS) -> tuple[float, float]:
    """Offset of this rank's clock from that of rank 0, and its maximum error.

    No rank leaves an allgather before all have entered it, so each round bounds the offset from both sides.
    """
    entered, left = np.empty(rounds), np.empty(rounds)
    for number in range(rounds):
        entered[number] = time.monotonic()
        world.allgather(np.zeros(1))
        left[number] = time.monotonic()
    their_entered, their_left = np.split(world.allgather(np.concatenate([entered, left]))[0], 2)
    low, high = float((entered - their_left).max()), float((left - their_entered).min())
    return (low + high) / 2, (high - low) / 2
