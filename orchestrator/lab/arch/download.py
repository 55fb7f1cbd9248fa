"""Debian packages of another architecture, fetched by this computer's apt without telling its dpkg.

apt gets directories of its own: lists, cache and a status file that says nothing is installed. Where packages come
from, through which proxy and whose signatures count is as on this computer; apt checks every file it fetches.
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
    """The packages and all that they need, as .deb files below `root`, which belongs to apt from now on."""
    for directory in ("lists/partial", "archives/partial"):
        (root / directory).mkdir(parents=True)
    (root / "status").touch()
    configuration = root / "apt.conf"
    acquire = "\n".join(_how_this_computer_fetches())
    configuration.write_text(_CONFIGURATION.format(root=root, architecture=architecture, acquire=acquire))
    _apt(configuration, "update", "-qq")
    _apt(configuration, "install", "-qq", "--yes", "--download-only", *packages)
    return sorted((root / "archives").glob("*.deb"))


def _how_this_computer_fetches() -> list[str]:
    """Proxies and the like; the rest of its configuration may name programs to run after an update."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    return [line for line in dump.splitlines() if line.startswith("Acquire::")]


def _apt(configuration: Path, *arguments: str) -> None:
    environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterctlError(
            f"apt-get cannot fetch packages for another architecture: {_first_error(done.stderr)}",
            remedy="needed once: is the network there, and do this computer's apt sources offer arm64, as Debian's do?",
        )


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E:")] or text.splitlines()
    return lines[0][:300] if lines else "no word from it"
