"""The programs of this computer that the lab itself uses."""

from __future__ import annotations

import os
import shutil

from orchestrator.errors import UsageError
from orchestrator.lab.arch.emulator import EMULATOR
from orchestrator.lab.shape import Arch

_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
}
_TO_EMULATE = {EMULATOR: "qemu-user-static", "apt-get": "apt", "dpkg-deb": "dpkg"}


def check_programs(arch: Arch) -> None:
    needed = {**_PACKAGES, **_TO_EMULATE} if arch.is_emulated else _PACKAGES
    missing = sorted({package for program, package in needed.items() if find_program(program) is None})
    if missing:
        remedy = f"make setup (or: apt-get install {' '.join(missing)})"
        raise UsageError(f"the lab needs programs of these packages: {', '.join(missing)}", remedy=remedy)


def find_program(name: str) -> str | None:
    """The sbin directories are searched too: a plain user seldom has them on PATH."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))
