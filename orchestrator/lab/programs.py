"""Host programs that the lab itself needs."""

from __future__ import annotations

import os
import shutil

from orchestrator.errors import UsageError
from orchestrator.lab.arch.emulator import EMULATOR
from orchestrator.lab.config import Arch

_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
}
_EMULATION_PACKAGES = {EMULATOR: "qemu-user-static", "apt-get": "apt", "dpkg-deb": "dpkg"}


def check_programs(arch: Arch) -> None:
    needed = {**_PACKAGES, **_EMULATION_PACKAGES} if arch.is_emulated else _PACKAGES
    missing = sorted({package for program, package in needed.items() if find_program(program) is None})
    if missing:
        remedy = f"make setup (or: apt-get install {' '.join(missing)})"
        raise UsageError(f"the lab needs these packages: {', '.join(missing)}", remedy=remedy)


def find_program(name: str) -> str | None:
    """Find a program in PATH or in the sbin directories, which PATH often lacks for ordinary users."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))
