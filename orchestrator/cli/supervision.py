"""Commands that show runs also start the supervisor again if it is gone, as after a boot of this computer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.paths import ClusterState
    from orchestrator.records.record import RunRecord
    from orchestrator.supervisor.status import SupervisorStatus


def check_supervision(state: ClusterState) -> tuple[SupervisorStatus | None, list[RunRecord]]:
    """The supervisor, None if there is none, and the runs that need one."""
    from orchestrator.errors import ClusterctlError
    from orchestrator.inventory import load
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.service import ensure_supervisor
    from orchestrator.supervisor.status import read_status
    from orchestrator.view.console import warn

    status = read_status(state)
    unfinished = [record for record in RunStore(state.runs).all() if not record.over]
    if status is not None or not unfinished:
        return status, unfinished
    try:
        return ensure_supervisor(load(Path(unfinished[-1].inventory)), state), unfinished
    except ClusterctlError as error:
        warn(error.message)
        return None, unfinished


def warn_about_logout(session: Session) -> None:
    """A supervisor that systemd runs ends with the last session of its user, unless the user lingers."""
    from orchestrator.supervisor.service import ends_at_logout
    from orchestrator.view.console import warn

    if ends_at_logout(session.cluster):
        warn("the supervisor ends when you log out of this computer; to keep it: loginctl enable-linger")
