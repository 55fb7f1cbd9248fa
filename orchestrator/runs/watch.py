"""A run's last checkpoint, brought to this computer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import PhoneError
from orchestrator.runs.checkpoints import FetchError, Told, fetch, largest, remove_from_phone
from orchestrator.runs.events import Event, Progress
from orchestrator.runs.record import RunStore

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

Connect = Callable[[], "PhoneConnection"]


def fetch_told(store: RunStore, run_id: str, event: Event, connect: Connect) -> Path:
    directory, told = store.directory(run_id), Told.of(event)
    if told is None or told.size > largest(store.spec(run_id), directory):
        raise FetchError("what the head phone says of it cannot be so", remedy=f"clusterctl collect-logs {run_id}")
    return fetch(connect(), run_id, told, directory)


def fetch_checkpoint(store: RunStore, run_id: str, progress: Progress, connect: Connect) -> Path | None:
    """The last checkpoint the run told of, brought here; none if it told of none."""
    if progress.checkpoint is None:
        return None
    path = fetch_told(store, run_id, progress.checkpoint, connect)
    if progress.state == "done":
        with suppress(PhoneError):  # it is here; the phone's copy may stay
            remove_from_phone(connect(), run_id)
    return path
