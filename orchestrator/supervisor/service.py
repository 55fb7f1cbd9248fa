"""Starts the supervisor process of a cluster where none is running: as a systemd user unit, else detached.

A lab does not outlive a boot, so its supervisor is always a detached process.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import process_lock
from orchestrator.errors import ClusterctlError
from orchestrator.lab.modes import MODE_VARIABLE
from orchestrator.paths import cache_dir, state_dir
from orchestrator.supervisor import systemd
from orchestrator.supervisor.status import SupervisorStatus, code_version, read_status
from phone_agent.contract.files import read_tail

if TYPE_CHECKING:
    from orchestrator.inventory.model import Cluster
    from orchestrator.paths import ClusterState

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0
RESTART_S = 15.0  # a supervisor that does not hold the lock by then has ended
# What the process needs of the environment that a person works in. Not TMPDIR: it may be gone after the logout.
_INHERITED = ("HOME", "USER", "LOGNAME", "PATH", "LANG", "PYTHONPATH", "SSH_AUTH_SOCK", MODE_VARIABLE)


class SupervisorStartError(ClusterctlError):
    """Without a supervisor, nobody restarts a run when a phone fails."""


@dataclass
class StartingSupervisor:
    cluster: Cluster
    state: ClusterState
    process: subprocess.Popen[bytes] | None = None  # None: it was running, or systemd starts it
    started_at: float = -math.inf  # on the monotonic clock; -inf: it was running

    def start(self) -> None:
        self.started_at = time.monotonic()
        if _has_unit(self.cluster):
            systemd.Unit(self.state).start(environment())
        else:
            self.process = _start_detached(self.state)

    def wait(self) -> SupervisorStatus:
        """Until one holds the lock. One that has ended meanwhile is started again."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while (status := read_status(self.state)) is None:
            failed = self.process is not None and self.process.poll()  # 0: another one was faster
            if failed or time.monotonic() > deadline:
                raise _start_error(self.state)
            if time.monotonic() - self.started_at > RESTART_S:
                self.start()
            time.sleep(0.05)
        if self.process is not None:
            self.process.returncode = 0  # it keeps running; suppress Popen's warning about that
        return status


def ensure_supervisor(cluster: Cluster, state: ClusterState) -> SupervisorStatus:
    """The one that is running, whatever its version, or a new one."""
    return read_status(state) or start_supervisor(cluster, state).wait()


def start_supervisor(cluster: Cluster, state: ClusterState) -> StartingSupervisor:
    """Does nothing if one is running, unless it is of another version: then the new one takes over its runs."""
    status = read_status(state)
    if status is not None and status.version == code_version():
        return StartingSupervisor(cluster, state)
    if status is not None:
        end_supervisor(state)
    state.root.mkdir(parents=True, exist_ok=True)
    starting = StartingSupervisor(cluster, state)
    starting.start()
    return starting


def ends_at_logout(cluster: Cluster) -> bool:
    return _has_unit(cluster) and not systemd.is_lingering()


def _has_unit(cluster: Cluster) -> bool:
    return cluster.lab is None and systemd.is_available()


def end_supervisor(state: ClusterState) -> None:
    """End the process. The runs themselves continue on the phones."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        process_lock.kill_holder(state.supervisor_lock, END_TIMEOUT_S, number)


def environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    if path := inherited.get("PYTHONPATH"):  # the working directory will be another one
        inherited["PYTHONPATH"] = os.pathsep.join(str(Path(each).absolute()) for each in path.split(os.pathsep))
    return {**inherited, "CLUSTERCTL_STATE": str(state_dir()), "CLUSTERCTL_CACHE": str(cache_dir())}


def _start_detached(state: ClusterState) -> subprocess.Popen[bytes]:
    """In a session of its own: closing the terminal does not end it."""
    with state.supervisor_log.open("ab") as errors:
        return subprocess.Popen(
            systemd.supervisor_command(state),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )


def _start_error(state: ClusterState) -> SupervisorStartError:
    last = next((line for line in reversed(read_tail(state.supervisor_log)) if line.strip()), "no output")
    return SupervisorStartError(
        f"the supervisor of {state.cluster} did not start: {last}", remedy=f"see {state.supervisor_log}"
    )
