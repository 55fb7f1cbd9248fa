"""What a rank did when: the last spans of both its threads, kept in memory and written once, at the end."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from phone_agent.comm.world import World

MOST = 1 << 15  # spans, in a few megabytes: hundreds of steps of a small network, some ten of a large one
ROUNDS = 16


class Timeline:
    """Times are this phone's monotonic clock. Safe from any thread.

    The computing thread's: data, forward, backward, wait. The communication thread's: reduce, update, exchange; inside
    a reduce: send and receive (waiting for either), add (also encoding and decoding).
    """

    def __init__(self, most: int = MOST) -> None:
        self.spans: deque[tuple[str, int, float, float]] = deque(maxlen=most)
        self.reducing = 0  # the step whose gradients are under way

    def add(self, kind: str, step: int, started: float, ended: float) -> None:
        self.spans.append((kind, step, started, ended))

    def note(self, what: str, started: float, ended: float) -> None:
        """What a collective does inside a reduce."""
        self.spans.append(("add" if what == "reduce" else what, self.reducing, started, ended))

    def write(self, path: Path, **header: Any) -> None:
        """A line that says whose it is, then one line a span: kind, step, from, to."""
        with path.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in self._lines(header))

    def _lines(self, header: dict[str, Any]) -> Iterator[str]:
        yield json.dumps(header)
        for kind, step, started, ended in tuple(self.spans):
            yield json.dumps([kind, step, round(started, 6), round(ended, 6)])


def clock_offset(world: World, rounds: int = ROUNDS) -> tuple[float, float]:
    """What to subtract from this rank's clock to have rank 0's; and how far off that may be at most.

    Nobody leaves an allgather before everybody has entered it: so each round bounds the difference from both sides.
    """
    entered, left = np.empty(rounds), np.empty(rounds)
    for number in range(rounds):
        entered[number] = time.monotonic()
        world.allgather(np.zeros(1))
        left[number] = time.monotonic()
    their_entered, their_left = np.split(world.allgather(np.concatenate([entered, left]))[0], 2)
    low, high = float((entered - their_left).max()), float((left - their_entered).min())
    return (low + high) / 2, (high - low) / 2
