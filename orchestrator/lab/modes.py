"""Selection of the lab mode: namespaces as root, namespaces in a user namespace, or the loopback interface."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from orchestrator.errors import UsageError
from orchestrator.lab import links
from orchestrator.lab.config import Arch, LabConfig
from orchestrator.lab.identity import make_user_switch
from orchestrator.lab.namespaces import create_lab_namespaces
from orchestrator.lab.spec import FIRST_OCTET, SSH_PORT, LabSpec, Mode

MODE_VARIABLE = "CLUSTERCTL_LAB_MODE"
_REMEDIES = {
    Arch.NATIVE: "run the lab as a user other than root",
    Arch.AARCH64: "run the lab where namespaces are allowed (docs/guide/lab.md), or with --arch native",
}
_AVAILABLE = "available"


def select_mode(arch: Arch = Arch.NATIVE) -> tuple[Mode, list[str]]:
    """The best mode available on this host, and the reason why each better mode is unavailable."""
    if forced := os.environ.get(MODE_VARIABLE):
        return _forced_mode(forced, arch)
    reasons: list[str] = []
    for mode in Mode:
        if (reason := unavailable_reason(mode, arch)) is None:
            return mode, reasons
        reasons.append(reason)
    raise UsageError(f"no lab can run on this computer: {'; '.join(reasons)}", remedy=_REMEDIES[arch])


def _forced_mode(name: str, arch: Arch) -> tuple[Mode, list[str]]:
    try:
        mode = Mode(name)
    except ValueError:
        raise UsageError(f"{MODE_VARIABLE}={name}: no such mode", remedy=f"one of {', '.join(Mode)}") from None
    if reason := unavailable_reason(mode, arch):
        raise UsageError(f"{MODE_VARIABLE}={name}: {reason}", remedy=f"unset {MODE_VARIABLE}")
    return mode, [f"{MODE_VARIABLE}={name} is set"]


def reserve_network(mode: Mode) -> tuple[int, socket.socket]:
    """The second octet of the lab's addresses, and a socket that reserves them until all its copies are closed.

    Loopback labs share one interface, so each needs its own 127.N. Other labs have their own network.
    """
    reservation = socket.socket(socket.AF_UNIX)
    if mode is not Mode.LOOPBACK:
        return FIRST_OCTET, reservation
    free = (octet for octet in range(FIRST_OCTET, 256) if _is_free(f"127.{octet}.1.1") and _reserve(reservation, octet))
    if (octet := next(free, None)) is None:
        reservation.close()
        raise UsageError("all networks for loopback labs are in use", remedy="clusterctl lab down, for one of the labs")
    return octet, reservation


def _reserve(reservation: socket.socket, octet: int) -> bool:
    """Whether no other lab has this network. An abstract socket needs no file and ends with its processes."""
    try:
        reservation.bind(f"\0clusterctl-lab-127.{octet}")
    except OSError:
        return False
    return True


def _is_free(address: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, SSH_PORT))
        except OSError:
            return False
    return True


def unavailable_reason(mode: Mode, arch: Arch = Arch.NATIVE) -> str | None:
    """Why a mode cannot be used on this host, or None if it can. The mode is tried out in a subprocess."""
    if mode is Mode.ROOT and os.geteuid() != 0:
        return "root mode: not running as root"
    if mode is Mode.LOOPBACK and arch.is_emulated:
        return f"{mode} mode: without namespaces phones use the host's programs, which are not {arch}"
    command = [sys.executable, "-m", "orchestrator.lab.modes", mode, arch]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return None if answer == _AVAILABLE else f"{mode} mode: {answer or 'the probe crashed'}"


def probe_mode(mode: Mode, arch: Arch) -> str:
    """Exercise every kernel feature that a lab needs. Afterwards this process can only exit."""
    spec = LabSpec(mode, LabConfig(1, arch=arch))
    try:
        if mode is not Mode.LOOPBACK:
            create_lab_namespaces(mode, arch)
            links.configure(*links.switch_commands(spec))
        make_user_switch(mode, spec.phones[0])()
    except OSError as error:
        return error.strerror or str(error)
    return _AVAILABLE


if __name__ == "__main__":
    sys.stdout.write(probe_mode(Mode(sys.argv[1]), Arch(sys.argv[2])))
