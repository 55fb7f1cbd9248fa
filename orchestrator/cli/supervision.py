"""Commands that show runs also start the supervisor again if it is gone, as after a boot of this computer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.records.record import RunRecord
    from orchestrator.supervisor.status import SupervisorStatus


def check_supervision(session: Session) -> tuple[SupervisorStatus | None, list[RunRecord]]:
    """The supervisor, None if there is none, and the runs that need one."""
    from orchestrator.errors import ClusterctlError
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.service import ensure_supervisor
    from orchestrator.supervisor.status import read_status
    from orchestrator.view.console import warn

    unfinished = [record for record in RunStore(session.state.runs).all() if not record.over]
    if not unfinished:
        return read_status(session.state), []
    try:
        return ensure_supervisor(session.cluster, session.state), unfinished
    except ClusterctlError as error:
        warn(error.message)
        return None, unfinished


def warn_about_logout(session: Session) -> None:
    """A supervisor that systemd runs ends with the last session of its user, unless the user lingers."""
    from orchestrator.supervisor.service import ends_at_logout
    from orchestrator.view.console import warn

    if ends_at_logout(session.cluster):
        warn("the supervisor ends when you log out of this computer; to keep it: loginctl enable-linger")
