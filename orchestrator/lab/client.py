"""Asking a running lab's anchor for something."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.lab import cables
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.lock import holder
from orchestrator.lab.spec import LabSpec


def read_spec(lab_dir: Path) -> LabSpec:
    """The plan of the running lab."""
    lab = LabLayout(lab_dir)
    if holder(lab.anchor_lock) is None:
        left = " (it ended, and left files behind)" if lab_dir.exists() else ""
        raise UsageError(f"no lab is up{left}", remedy="clusterctl lab up --phones 4")
    return LabSpec.from_json(lab.spec.read_text())


def request(lab_dir: Path, message: dict[str, Any], files: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
    """One question, one answer. Raises ClusterctlError with the anchor's own words if it could not."""
    try:
        with cables.dial(lab_dir) as channel:
            cables.send(channel, message, files)
            reply, received = cables.receive(channel)
    except (OSError, EOFError) as error:
        raise ClusterctlError(
            f"the lab did not answer ({error or 'it ended'})", remedy="clusterctl lab status"
        ) from error
    if refusal := reply.get("error"):
        remedy = reply.get("remedy") or f"the lab's log: {LabLayout(lab_dir).log}"
        raise ClusterctlError(str(refusal), remedy=remedy)
    return reply, received
