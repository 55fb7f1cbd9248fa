"""Event log: one JSON object per line, flushed at once. The host follows it. Events about the condition of phones."""

from __future__ import annotations

import errno
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from phone_agent.contract.schema import RankSpec
from phone_agent.device.condition import Condition, Level
from phone_agent.train.rank_steps import Conditions


def location(rank: RankSpec) -> str:
    """The phone's name and switch port, for messages."""
    return f"{rank.phone} ({rank.switch}:{rank.port})"


def event(name: str, rank: int, phone: str, **fields: Any) -> dict[str, Any]:
    return {"event": name, "time": time.time(), "rank": rank, "phone": phone, **fields}


class EventLog:
    """Appends from any thread, to several files if a rank reports both for itself and for the run."""

    def __init__(self, rank: int, phone: str, *paths: Path) -> None:
        self._rank, self._phone, self._lock = rank, phone, threading.Lock()
        self._files = [_LineFile(path) for path in paths]

    def write(self, name: str, **fields: Any) -> str:
        return self._append(event(name, self._rank, self._phone, **fields))

    def write_of(self, rank: RankSpec, name: str, **fields: Any) -> None:
        """An event about that rank, which may be another one."""
        self._append(event(name, rank.rank, rank.phone, **fields))

    def _append(self, document: dict[str, Any]) -> str:
        line = json.dumps(document, allow_nan=False)
        with self._lock:
            for file in self._files:
                file.append(line.encode())
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


class _LineFile:
    """Appends whole lines. On a full disk lines are lost, but training continues."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._torn = self._warned = False

    def append(self, line: bytes) -> None:
        data = b"\n" * self._torn + line + b"\n"
        try:
            written = self._file.write(data)
        except OSError as error:
            self._lose(error)
        else:
            self._torn = written < len(data)

    def _lose(self, error: OSError) -> None:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise error
        if not self._warned:
            sys.stderr.write(f"phone_agent: {error.strerror}: events are being lost\n")
            self._warned = True

    def close(self) -> None:
        self._file.close()


STATUS_EVERY_S = 30.0


class ConditionEvents:
    """Rank 0 reports on all phones, any other rank on its own. `rank` is this process's own."""

    def __init__(self, ranks: Sequence[RankSpec], rank: int, events: EventLog) -> None:
        self._reported = [each for each in ranks if rank in {0, each.rank}]
        self._events = events
        self._before = Conditions.of([Condition()] * len(ranks))
        self._status_at = time.monotonic()

    def observe(self, conditions: Conditions) -> None:
        """The conditions of all ranks, at every step and during a pause."""
        status_due = time.monotonic() - self._status_at >= STATUS_EVERY_S
        changed = (conditions.column("level") != self._before.column("level")) | (
            conditions.column("drains") != self._before.column("drains")
        )
        for rank in self._reported if status_due or changed.any() else ():
            if changed[rank.rank]:
                self._report_change(rank, self._before[rank.rank], conditions[rank.rank])
            if status_due:
                self._events.write_of(rank, "device_status", **conditions[rank.rank].as_json())
        self._before = conditions
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
