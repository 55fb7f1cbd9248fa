"""What a new run needs of the one it goes on from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.launch.dataset import SYNTHETIC, Dataset, stored_as
from orchestrator.launch.initial_weights import Start
from orchestrator.records import checkpoints
from orchestrator.records.checkpoints import FoundCheckpoint
from orchestrator.records.record import RunRecord, RunStore
from phone_agent.contract.schema import DataSpec, RunSpec

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet


def find_checkpoint(fleet: Fleet, store: RunStore, parent: RunRecord, note: Callable[[str], None]) -> FoundCheckpoint:
    if parent.state in {"starting", "running", "recovering"}:
        raise UsageError(f"{parent.run_id} is {parent.state}", remedy=f"clusterctl attach {parent.run_id}")
    found = checkpoints.find_newest(fleet, parent.run_id, store.directory(parent.run_id))
    if found is None:
        raise UsageError(f"{parent.run_id} left no checkpoint, here or on a phone", remedy="launch --checkpoint-every")
    for damaged in found.damaged:
        note(f"skipped {damaged}: it is damaged")
    return found


def stored_data(spec: DataSpec) -> Dataset:
    """The same samples: another content under the same name would be another run."""
    stored = stored_as(spec)
    if stored is None and spec.name != SYNTHETIC:
        raise UsageError(
            f"the dataset '{spec.name}' is gone, damaged or has changed since", remedy="add it again as it was"
        )
    return Dataset(spec, stored)


def start_of(spec: RunSpec, directory: Path, checkpoint: Path) -> Start:
    source = (directory / spec.model_file).read_bytes() if spec.model_file else None
    return Start(source, resume=checkpoint)
