"""Watch a run to its end and write down where it stands; say why, when it failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import PhoneError
from orchestrator.runs.checkpoints import FetchError, Told, fetch, largest, remove_from_phone
from orchestrator.runs.diagnosis import Diagnosis, diagnose
from orchestrator.runs.events import Event, Progress
from orchestrator.runs.follow import OnBreak, follow
from orchestrator.runs.record import RunRecord, RunStore
from orchestrator.runs.tensorboard import TensorBoard
from phone_agent import layout

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

_SAVE_EVERY_S = 5.0
_LOG_TAIL_BYTES = 65536

Connect = Callable[[], "PhoneConnection"]
OnEvent = Callable[[Progress, Event], None]


def watch(store: RunStore, record: RunRecord, connect: Connect, on_event: OnEvent, on_break: OnBreak) -> Progress:
    """Returns when the run is over. Interrupted, it leaves a record from which `attach` goes on."""
    progress = Progress(record.steps)
    saved = time.monotonic()
    with TensorBoard(store.directory(record.run_id)) as figures:
        try:
            for event in follow(record.run_id, store.events_file(record.run_id), connect, on_break):
                progress.update(event)
                on_event(progress, event)
                figures.write(event)
                if time.monotonic() - saved > _SAVE_EVERY_S:
                    saved = time.monotonic()
                    store.save(record.with_progress(progress))
        finally:
            store.save(record.with_progress(progress))
    return progress


def fetch_checkpoint(store: RunStore, run_id: str, progress: Progress, connect: Connect) -> Path | None:
    """The last checkpoint the run told of, brought here; none if it told of none."""
    if progress.checkpoint is None:
        return None
    directory, told = store.directory(run_id), Told.of(progress.checkpoint)
    if told is None or told.size > largest(store.spec(run_id), directory):
        raise FetchError("what the head phone says of it cannot be so", remedy=f"clusterctl collect-logs {run_id}")
    path = fetch(connect(), run_id, told, directory)
    if progress.state == "done":
        with suppress(PhoneError):  # it is here; the phone's copy may stay
            remove_from_phone(connect(), run_id)
    return path


def explain_failure(store: RunStore, run_id: str, progress: Progress, connect: Connect) -> Diagnosis:
    """Blames a phone from the events and mpirun's log, and keeps the verdict in the record."""
    diagnosis = diagnose(store.spec(run_id), progress.error, _mpirun_log(run_id, connect))
    store.save(replace(store.find(run_id), error=diagnosis.headline))
    return diagnosis


def _mpirun_log(run_id: str, connect: Connect) -> str:
    path = layout.run_dir(run_id) / layout.MPIRUN_LOG
    try:
        return connect().run(["tail", "-c", str(_LOG_TAIL_BYTES), "--", str(path)]).stdout
    except PhoneError as error:
        return f"(mpirun.log could not be read: {error.message})"
