"""A run's last checkpoint, brought to this computer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.records.checkpoints import FetchError, Told, fetch, largest, remove_from_phone
from orchestrator.records.events import Event, Progress
from orchestrator.records.record import RunRecord, RunStore
from phone_agent.api.weights import savers

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

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
    return fetch_told(store, run_id, progress.checkpoint, connect)


def remove_copies(store: RunStore, record: RunRecord, fleet: Fleet) -> None:
    """Of a checkpoint that is here, from the phones that wrote one in any attempt. On those that do not answer it
    stays."""
    specs = [store.spec(record.run_id, attempt) for attempt in range(record.attempt + 1)]
    wrote = {spec.ranks[rank].phone for spec in specs for rank in savers([each.switch for each in spec.ranks])}
    phones = [phone for phone in fleet.phones if phone.name in wrote]
    fleet.map(lambda connection: remove_from_phone(connection, record.run_id), phones)
