"""The status file of the supervisor process of a cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import orchestrator
from orchestrator.process_lock import holder
from phone_agent.contract.files import read_json, write_json

if TYPE_CHECKING:
    from orchestrator.paths import ClusterState


@dataclass(frozen=True)
class SupervisorStatus:
    pid: int
    version: str
    started: float
    heartbeat: float
    runs: tuple[str, ...]  # that it supervises


def write_status(state: ClusterState, status: SupervisorStatus) -> None:
    write_json(state.supervisor_status, asdict(status))


def read_status(state: ClusterState) -> SupervisorStatus | None:
    """None if no supervisor is running."""
    pid = holder(state.supervisor_lock)
    if pid is None:
        return None
    raw = read_json(state.supervisor_status)
    if not isinstance(raw, dict) or raw.get("pid") != pid:  # it is just starting
        return SupervisorStatus(pid, code_version(), 0.0, 0.0, ())
    return SupervisorStatus(pid, str(raw["version"]), raw["started"], raw["heartbeat"], tuple(raw["runs"]))


@cache
def code_version() -> str:
    """Of the code on this computer: a supervisor that runs another one is replaced. Files of a git checkout change
    without a new version, so the newest of them counts as well."""
    newest = max(path.stat().st_mtime_ns for path in Path(orchestrator.__file__).parent.rglob("*.py"))
    return f"{version('clusterctl')}-{newest}"
