"""What this computer allows: namespaces as root, namespaces as a user, or neither."""

from __future__ import annotations

import os
import shutil
import socket

from orchestrator.errors import UsageError
from orchestrator.lab import links, syscalls, wire
from orchestrator.lab.namespaces import enter_lab
from orchestrator.lab.shape import Shape
from orchestrator.lab.spec import LabSpec, Mode

FORCE_VARIABLE = "CLUSTERCTL_LAB_MODE"
_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
}


def check_programs() -> None:
    """sbin directories are searched too: a plain user has them rarely on PATH."""
    missing = sorted({package for program, package in _PACKAGES.items() if find_program(program) is None})
    if missing:
        remedy = f"make setup (or: apt-get install {' '.join(missing)})"
        raise UsageError(f"the lab needs programs of these packages: {', '.join(missing)}", remedy=remedy)


def find_program(name: str) -> str | None:
    return shutil.which(name, path=search_path())


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def choose() -> tuple[Mode, list[str]]:
    """The best mode that works here, and why each better one does not."""
    if forced := os.environ.get(FORCE_VARIABLE):
        return _forced(forced)
    objections: list[str] = []
    for mode in (Mode.ROOT, Mode.USER):
        if (objection := why_not(mode)) is None:
            return mode, objections
        objections.append(objection)
    return Mode.LOOPBACK, objections


def _forced(name: str) -> tuple[Mode, list[str]]:
    try:
        mode = Mode(name)
    except ValueError:
        raise UsageError(f"{FORCE_VARIABLE}={name}: no such mode", remedy=f"one of {', '.join(Mode)}") from None
    if objection := why_not(mode):
        raise UsageError(f"{FORCE_VARIABLE}={name}: {objection}", remedy=f"unset {FORCE_VARIABLE}")
    return mode, [f"{FORCE_VARIABLE}={name} is set"]


def why_not(mode: Mode) -> str | None:
    """None if labs can be made this way; otherwise the reason, found by trying in a child process."""
    if mode is Mode.LOOPBACK:
        return None
    if mode is Mode.ROOT and os.geteuid() != 0:
        return "not root"
    here, there = wire.pair()
    if (child := os.fork()) == 0:
        here.close()
        _try(mode, there)
    there.close()
    with here:
        try:
            reply, _ = wire.receive(here)
        except EOFError:
            reply = {"error": "the attempt crashed"}
    os.waitpid(child, 0)
    return reply.get("error")


def _try(mode: Mode, report: socket.socket) -> None:
    try:
        enter_lab(mode)
        links.configure(*links.switches(LabSpec(mode, Shape(1))))
        syscalls.unshare(syscalls.CLONE_NEWNET)
        wire.send(report, {})
    except OSError as error:
        wire.send(report, {"error": f"namespaces as {mode}: {error}"})
    finally:
        os._exit(0)
