"""The last checkpoint of a run that has ended: brought to this computer, then removed from the phones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.records.checkpoints import FetchError, fetch_last, newest_local, remove_from_phones
from orchestrator.supervisor.run_context import connection_to
from phone_agent.contract import layout

if TYPE_CHECKING:
    from orchestrator.launch.context import LaunchContext
    from orchestrator.records.events import Progress
    from orchestrator.records.record import RunRecord, RunStore

_PAUSES_S = (1.0, 3.0, 10.0)  # before each further try


def local_checkpoint(store: RunStore, run_id: str, progress: Progress) -> Path | None:
    """The last checkpoint of the run, if it is on this computer. One that was written while the run was being stopped
    may be newer than the last that the run announced."""
    newest = newest_local(store.directory(run_id))
    announced = progress.checkpoint.step if progress.checkpoint else 0
    return newest if newest and layout.checkpoint_step(newest) >= announced else None


def collect_checkpoint(launch: LaunchContext, record: RunRecord, progress: Progress) -> Path | None:
    """None if the run announced none. Raises FetchError, PhoneError or OSError."""
    path = fetch_last(launch.store, record.run_id, progress, lambda: connection_to(launch.fleet, record.head))
    if path is not None and progress.state == "done":
        remove_from_phones(launch.store, record, launch.fleet)
    return path


def collect_with_retries(launch: LaunchContext, record: RunRecord, progress: Progress) -> str:
    """Why it did not arrive; empty if it did. Only a run that is done is worth waiting for."""
    pauses = _PAUSES_S if progress.state == "done" else ()
    for pause in (*pauses, None):
        try:
            collect_checkpoint(launch, record, progress)
        except (FetchError, PhoneError, OSError) as error:
            reason = error.message if isinstance(error, ClusterctlError) else error.strerror or str(error)
            if pause is None:
                return reason
            time.sleep(pause)
        else:
            break
    return ""
