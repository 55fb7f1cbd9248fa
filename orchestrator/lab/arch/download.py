"""Download Debian packages of another architecture with the host's apt, without touching the host's dpkg database.

apt uses private directories: lists, cache and an empty status file. Sources, proxy and trusted keys are those of the
host, and apt verifies every file.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import ClusterctlError

_CONFIGURATION = """\
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::State "{root}";
Dir::State::status "{root}/status";
Dir::Cache "{root}";
Dir::Log "{root}";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
{acquire}
Acquire::Languages "none";
Acquire::Retries "3";
"""


def download(packages: Sequence[str], architecture: str, root: Path) -> list[Path]:
    """Download packages and their dependencies. `root` becomes apt's private directory. Return the .deb files."""
    for directory in ("lists/partial", "archives/partial"):
        (root / directory).mkdir(parents=True)
    (root / "status").touch()
    configuration = root / "apt.conf"
    acquire = "\n".join(_host_acquire_options())
    configuration.write_text(_CONFIGURATION.format(root=root, architecture=architecture, acquire=acquire))
    _apt(configuration, "update", "-qq")
    _apt(configuration, "install", "-qq", "--yes", "--download-only", *packages)
    return sorted((root / "archives").glob("*.deb"))


def _host_acquire_options() -> list[str]:
    """Proxies and similar options. The rest of the host's configuration may name programs to run after an update."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    return [line for line in dump.splitlines() if line.startswith("Acquire::")]


def _apt(configuration: Path, *arguments: str) -> None:
    environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterctlError(
            f"apt-get cannot download packages for another architecture: {_first_error(done.stderr)}",
            remedy="check the network connection, and that this computer's apt sources offer arm64 packages",
        )


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E:")] or text.splitlines()
    return lines[0][:300] if lines else "no output"
