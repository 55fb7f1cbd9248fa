"""What this computer allows: namespaces as root, namespaces as a user, or neither."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from orchestrator.errors import UsageError
from orchestrator.lab.probe import POSSIBLE
from orchestrator.lab.shape import Arch
from orchestrator.lab.spec import FIRST_OCTET, SSH_PORT, Mode

FORCE_VARIABLE = "CLUSTERCTL_LAB_MODE"
_REMEDY = {
    Arch.NATIVE: "run it as a user that is not root",
    Arch.AARCH64: "run it where namespaces are allowed (docs/guide/lab.md), or with --arch native",
}


def choose(arch: Arch = Arch.NATIVE) -> tuple[Mode, list[str]]:
    """The best mode that works here, and why each better one does not."""
    if forced := os.environ.get(FORCE_VARIABLE):
        return _forced(forced, arch)
    objections: list[str] = []
    for mode in Mode:
        if (objection := why_not(mode, arch)) is None:
            return mode, objections
        objections.append(objection)
    raise UsageError(f"no lab can run here: {'; '.join(objections)}", remedy=_REMEDY[arch])


def _forced(name: str, arch: Arch) -> tuple[Mode, list[str]]:
    try:
        mode = Mode(name)
    except ValueError:
        raise UsageError(f"{FORCE_VARIABLE}={name}: no such mode", remedy=f"one of {', '.join(Mode)}") from None
    if objection := why_not(mode, arch):
        raise UsageError(f"{FORCE_VARIABLE}={name}: {objection}", remedy=f"unset {FORCE_VARIABLE}")
    return mode, [f"{FORCE_VARIABLE}={name} is set"]


def free_octet(mode: Mode) -> int:
    """Labs on the loopback interface share it: each takes 127.N with the first N that is free."""
    return next(octet for octet in range(FIRST_OCTET, 256) if mode is not Mode.LOOPBACK or _is_free(f"127.{octet}.1.1"))


def _is_free(address: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, SSH_PORT))
        except OSError:
            return False
    return True


def why_not(mode: Mode, arch: Arch = Arch.NATIVE) -> str | None:
    """None if labs can be made this way; otherwise the reason, found by trying."""
    if mode is Mode.ROOT and os.geteuid() != 0:
        return "as root: this user is not root"
    if mode is Mode.LOOPBACK and arch.is_emulated:
        return f"as {mode}: without namespaces phones see this computer's programs, not {arch} ones"
    command = [sys.executable, "-m", "orchestrator.lab.probe", mode, arch]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return None if answer == POSSIBLE else f"as {mode}: {answer or 'the attempt crashed'}"
