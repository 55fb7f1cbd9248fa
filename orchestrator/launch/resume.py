"""`launch --resume`: a new run that continues from the checkpoint of another one, on the phones there are now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.launch.dataset import Dataset, find_stored
from orchestrator.launch.initial_state import InitialState
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.launch.request import LaunchRequest, flag_of, given_options
from orchestrator.launch.resolve import checkpoint_interval
from orchestrator.launch.run_spec import new_run_id
from orchestrator.records import checkpoints
from orchestrator.records.checkpoints import FoundCheckpoint
from orchestrator.records.record import RunRecord, RunStore
from phone_agent.contract import layout
from phone_agent.contract.schema import SYNTHETIC, DataSpec, RecoverySpec, ResumeSpec, RunSpec

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet

CHANGEABLE = frozenset(
    {"steps", "recovery.checkpoint_every", "recovery.spares", "recovery.min_phones", "recovery.max_restarts"}
)


def check_resume(request: LaunchRequest) -> None:
    """Other options cannot change: with another optimizer, say, the checkpoint would not fit."""
    fixed = [flag_of(path, value) for path, value in given_options(request).items() if path not in CHANGEABLE]
    if fixed:
        raise UsageError(
            f"--resume continues with the options of the run: {', '.join(fixed)} cannot change",
            remedy="leave them out, or start a new run with --weights",
        )


def find_checkpoint(fleet: Fleet, store: RunStore, parent: RunRecord, note: Callable[[str], None]) -> FoundCheckpoint:
    if not parent.over:
        stop = f"clusterctl stop {parent.run_id}"
        raise UsageError(f"{parent.run_id} is {parent.state} and continues by itself", remedy=f"{stop}, then again")
    search = checkpoints.find_newest(fleet, store.spec(parent.run_id), store.directory(parent.run_id))
    for damaged in search.damaged:
        note(f"skipped the damaged checkpoint {damaged}")
    if search.newest is None:
        raise UsageError(
            f"{parent.run_id} has no checkpoint on this computer or on any phone",
            remedy="start it again with clusterctl launch; --checkpoint-every says when checkpoints are written",
        )
    return search.newest


def build_resumed_spec(
    parent: RunSpec, phones: Sequence[Phone], done: int, request: LaunchRequest, spares: tuple[str, ...] = ()
) -> RunSpec:
    """`done`: the step of the checkpoint. `spares`: the phones that `request.recovery.spares` selects."""
    steps, created = request.steps or parent.steps, time.time()
    if done >= steps:
        raise UsageError(f"{parent.run_id} has completed {done} steps", remedy=f"--steps with more than {done}")
    return replace(
        next_attempt(parent, phones, 0),
        run_id=new_run_id(Path(parent.model_file).stem or parent.model, created),
        created=created,
        steps=steps,
        recovery=_recovery(parent, request, spares),
        weights="",
        resume=ResumeSpec(done, file=layout.RESUME_FILE),
        parent=parent.run_id,
    )


def _recovery(parent: RunSpec, request: LaunchRequest, spares: tuple[str, ...]) -> RecoverySpec:
    """Phones change between runs, so the limits are those of this launch."""
    given, before = request.recovery, parent.recovery
    limits = {"min_phones": given.min_phones, "max_restarts": given.max_restarts}
    changed = {name: value for name, value in limits.items() if value is not None}
    if given.checkpoint_every is not None:
        interval = checkpoint_interval(given.checkpoint_every)
    else:
        interval = {"checkpoint_every": before.checkpoint_every, "checkpoint_minutes": before.checkpoint_minutes}
    return RecoverySpec(**interval, spares=spares, **changed)


def stored_data(spec: DataSpec) -> Dataset:
    """The dataset of the parent run. Other content under the same name would be another training."""
    stored = find_stored(spec)
    if stored is None and spec.name != SYNTHETIC:
        raise UsageError(
            f"the dataset '{spec.name}' was removed or changed since the run was launched",
            remedy=f"clusterctl data add {spec.name} DIRECTORY, with the same content as then",
        )
    return Dataset(spec, stored)


def resumed_state(parent: RunSpec, directory: Path, checkpoint: Path) -> InitialState:
    source = (directory / parent.model_file).read_bytes() if parent.model_file else None
    return InitialState(source, resume=checkpoint)
