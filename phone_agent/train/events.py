"""Events, one JSON object a line, flushed at once: what the host follows."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from phone_agent.schema import RankSpec


def event(name: str, rank: int, phone: str, **fields: Any) -> dict[str, Any]:
    return {"event": name, "time": time.time(), "rank": rank, "phone": phone, **fields}


class EventLog:
    """Appends, from any thread; to several files at once when a rank reports for itself and for the run."""

    def __init__(self, rank: int, phone: str, *paths: Path) -> None:
        self._rank, self._phone, self._lock = rank, phone, threading.Lock()
        self._files = [path.open("a", encoding="utf-8", buffering=1) for path in paths]  # by line

    def write(self, name: str, **fields: Any) -> str:
        return self._append(event(name, self._rank, self._phone, **fields))

    def write_of(self, rank: RankSpec, name: str, **fields: Any) -> None:
        """About that rank, which may be another one."""
        self._append(event(name, rank.rank, rank.phone, **fields))

    def _append(self, document: dict[str, Any]) -> str:
        line = json.dumps(document, allow_nan=False)
        with self._lock:
            for file in self._files:
                file.write(line + "\n")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()
