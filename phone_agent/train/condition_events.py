"""What of the phones' conditions is worth an event. The head rank tells of all, any other of itself."""

from __future__ import annotations

import time
from collections.abc import Sequence

from phone_agent.contract.schema import RankSpec
from phone_agent.device.condition import Condition, Level
from phone_agent.train.events import EventLog
from phone_agent.train.progress import where

FIGURES_EVERY_S = 30.0


class Watch:
    """`rank` is the own one."""

    def __init__(self, ranks: Sequence[RankSpec], rank: int, events: EventLog) -> None:
        self._own = [each for each in ranks if rank in {0, each.rank}]
        self._events = events
        self._before = [Condition() for _ in ranks]
        self._told_figures = time.monotonic()

    def look(self, conditions: Sequence[Condition]) -> None:
        """By rank; at every step, and while all rest."""
        figures = time.monotonic() - self._told_figures >= FIGURES_EVERY_S
        for rank in self._own:
            self._one(rank, self._before[rank.rank], conditions[rank.rank])
            if figures:
                self._events.write_of(rank, "device_status", **conditions[rank.rank].as_json())
        self._before = list(conditions)
        if figures:
            self._told_figures = time.monotonic()

    def _one(self, rank: RankSpec, before: Condition, now: Condition) -> None:
        if now.level == Level.PAUSE != before.level:
            self._events.write_of(rank, "pause", reason=f"{where(rank)} rests: {now.reason()}")
        elif before.level == Level.PAUSE != now.level:
            self._events.write_of(rank, "resume", reason=f"{where(rank)} takes part again")
        elif now.level > before.level:
            hint = ": it should get less to do" if now.level == Level.REDUCE else ""
            self._warn(rank, now.reason() + hint)
        if now.drains and not before.drains:
            self._warn(rank, f"loses charge while plugged in ({now.battery_percent:.0f} % left): a stronger supply")

    def _warn(self, rank: RankSpec, message: str) -> None:
        self._events.write_of(rank, "warning", message=f"{where(rank)}: {message}", names_phone=True)
