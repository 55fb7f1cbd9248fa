"""A new run that goes on from another one's checkpoint: the same work, on the phones there are now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.launch.request import LaunchRequest, flag_of
from orchestrator.launch.run_spec import new_run_id
from phone_agent.contract import layout
from phone_agent.contract.schema import RunSpec

OWN = frozenset({"steps"})  # what a resumed run may decide itself


def check_resume(request: LaunchRequest) -> None:
    """All else is as it was: other rules would make the checkpoint another run's."""
    given = {each.name: value for each in fields(request) if (value := getattr(request, each.name)) != each.default}
    if foreign := [flag_of(name, value) for name, value in given.items() if name not in OWN]:
        told = f"--resume goes on as the run was: {', '.join(foreign)} cannot change"
        raise UsageError(told, remedy="--weights starts a new run")


def resumed_run(spec: RunSpec, phones: Sequence[Phone], done: int, steps: int | None = None) -> RunSpec:
    """`done`: the steps that the checkpoint has behind it."""
    wanted, created = steps or spec.steps, time.time()
    if done >= wanted:
        raise UsageError(f"{spec.run_id} has done {done} steps already", remedy=f"--steps, more than {done}")
    return replace(
        next_attempt(spec, phones, 0),
        run_id=new_run_id(Path(spec.model_file).stem or spec.model, created),
        created=created,
        steps=wanted,
        weights="",
        resume=layout.RESUME_FILE,
        parent=spec.run_id,
    )
