"""Events about the condition of phones. Rank 0 reports on all phones, any other rank on its own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from phone_agent.contract.schema import RankSpec
from phone_agent.device.condition import Condition, Level
from phone_agent.train.events import EventLog
from phone_agent.train.progress import location

STATUS_EVERY_S = 30.0


class ConditionEvents:
    """`rank` is this process's own."""

    def __init__(self, ranks: Sequence[RankSpec], rank: int, events: EventLog) -> None:
        self._reported = [each for each in ranks if rank in {0, each.rank}]
        self._events = events
        self._before = [Condition() for _ in ranks]
        self._status_at = time.monotonic()

    def observe(self, conditions: Sequence[Condition]) -> None:
        """The conditions of all ranks, at every step and during a pause."""
        status_due = time.monotonic() - self._status_at >= STATUS_EVERY_S
        for rank in self._reported:
            self._report_change(rank, self._before[rank.rank], conditions[rank.rank])
            if status_due:
                self._events.write_of(rank, "device_status", **conditions[rank.rank].as_json())
        self._before = list(conditions)
        if status_due:
            self._status_at = time.monotonic()

    def _report_change(self, rank: RankSpec, before: Condition, now: Condition) -> None:
        if now.level == Level.PAUSE != before.level:
            self._events.write_of(rank, "pause", reason=f"{location(rank)} pauses: {now.reason()}")
        elif before.level == Level.PAUSE != now.level:
            self._events.write_of(rank, "resume", reason=f"{location(rank)} resumes")
        elif now.level > before.level:
            hint = ": its load should be reduced" if now.level == Level.REDUCE else ""
            self._warn(rank, now.reason() + hint)
        if now.drains and not before.drains:
            percent = f"{now.battery_percent:.0f} % left"
            self._warn(rank, f"the battery drains although it is plugged in ({percent}): use a stronger power supply")

    def _warn(self, rank: RankSpec, message: str) -> None:
        self._events.write_of(rank, "warning", message=f"{location(rank)}: {message}")
