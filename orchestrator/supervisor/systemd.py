"""The systemd user unit of a supervisor: started again after a crash, and after a boot while runs are unfinished."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError

if TYPE_CHECKING:
    from orchestrator.paths import ClusterState

_TIMEOUT_S = 20.0

_UNIT = """\
[Unit]
Description=clusterctl: supervisor of the cluster {cluster}

[Service]
Type=exec
ExecStart={command}
WorkingDirectory=/
{environment}
StandardError=append:{log}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target
"""


def supervisor_command(state: ClusterState, *flags: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator.supervisor", state.cluster, *flags]


def is_available() -> bool:
    """Whether this user has a systemd instance."""
    return shutil.which("systemctl") is not None and _run("systemctl", "--user", "show-environment").returncode == 0


def is_lingering() -> bool:
    """Whether the units of this user outlive a logout."""
    if shutil.which("loginctl") is None:
        return True
    return "Linger=no" not in _run("loginctl", "show-user", str(os.getuid()), "--property=Linger").stdout


@dataclass(frozen=True)
class Unit:
    state: ClusterState

    @property
    def name(self) -> str:
        """Two state directories may have clusters of the same name."""
        digest = hashlib.sha256(str(self.state.root).encode()).hexdigest()[:8]
        return f"clusterctl-{self.state.cluster}-{digest}.service"

    @property
    def path(self) -> Path:
        base = os.environ.get("XDG_CONFIG_HOME")
        return (Path(base) if base else Path.home() / ".config") / "systemd" / "user" / self.name

    def text(self, environment: Mapping[str, str]) -> str:
        lines = [f"Environment={_quote(f'{name}={value}')}" for name, value in environment.items()]
        return _UNIT.format(
            cluster=self.state.cluster,
            command=" ".join(map(_quote, supervisor_command(self.state, "--unit"))).replace("$", "$$"),
            environment="\n".join(lines),
            log=_escape(str(self.state.supervisor_log)),
        )

    def start(self, environment: Mapping[str, str]) -> None:
        """Also where an older one is running, or one that is just ending."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text(environment), encoding="utf-8")
        self._systemctl("daemon-reload")
        self.enable()
        self._systemctl("restart", self.name)

    def enable(self) -> None:
        """From now on, a boot of this computer starts it."""
        self._systemctl("enable", self.name)

    def disable(self) -> None:
        self._systemctl("disable", self.name)

    def _systemctl(self, *arguments: str) -> None:
        done = _run("systemctl", "--user", *arguments)
        if done.returncode != 0:
            shown = f"systemctl --user {' '.join(arguments)}"
            raise ClusterctlError(f"{shown}: {done.stderr.strip()}", remedy=f"systemctl --user status {self.name}")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {_TIMEOUT_S:.0f} s")


def _quote(word: str) -> str:
    """As a word of a unit file."""
    return '"' + _escape(word).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escape(text: str) -> str:
    return text.replace("%", "%%")
