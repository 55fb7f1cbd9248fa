"""Requests to the daemon of a running lab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.lab import ipc
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.lock import holder
from orchestrator.lab.spec import LabSpec


def read_spec(lab_dir: Path) -> LabSpec:
    """The spec of the running lab. Raise UsageError if no lab is running."""
    lab = LabLayout(lab_dir)
    if holder(lab.daemon_lock) is None:
        crashed = " (an earlier lab ended without cleaning up)" if lab_dir.exists() else ""
        raise UsageError(f"no lab is running{crashed}", remedy="clusterctl lab up --phones 4")
    return LabSpec.from_json(lab.spec.read_text())


def request(lab_dir: Path, message: dict[str, Any], files: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
    """Send one request and return the reply. An error reported by the daemon is raised as ClusterctlError."""
    try:
        with ipc.connect(lab_dir) as channel:
            ipc.send(channel, message, files)
            reply, received = ipc.receive(channel)
    except (OSError, EOFError) as error:
        reason = str(error) or "connection closed"
        raise ClusterctlError(f"the lab daemon did not answer ({reason})", remedy="clusterctl lab status") from error
    if failure := reply.get("error"):
        remedy = reply.get("remedy") or f"see the lab daemon's log: {LabLayout(lab_dir).log}"
        raise ClusterctlError(str(failure), remedy=remedy)
    return reply, received
