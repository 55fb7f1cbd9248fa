"""How much a collective has carried, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Traffic:
    calls: int = 0
    bytes: int = 0  # sent by this rank
    seconds: float = 0.0

    def add(self, sent: int, seconds: float) -> None:
        self.calls += 1
        self.bytes += sent
        self.seconds += seconds
