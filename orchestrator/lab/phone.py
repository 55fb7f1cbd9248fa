"""From a fork of the anchor to a running phone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import traceback
from pathlib import Path
from typing import NoReturn

from orchestrator.lab import links, rootfs, syscalls, wire
from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.identity import has_own_uid, user_switch
from orchestrator.lab.init import PhoneInit
from orchestrator.lab.layout import LabLayout, PhoneLayout
from orchestrator.lab.processes import close_all_but
from orchestrator.lab.spec import LabSpec, Mode, VirtualPhone

_NAMESPACES = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID
)


def start(lab: LabLayout, spec: LabSpec, phone: VirtualPhone) -> socket.socket:
    """Forks the phone off. It says {"pid": …}, waits for its cable, then says {"booted": true} or {"error": …}."""
    here, there = wire.pair()
    if os.fork() == 0:
        here.close()
        _become(lab, spec, phone, there)
    there.close()
    return here


def _become(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> NoReturn:
    try:
        close_all_but([control.fileno()])
        if spec.mode is Mode.LOOPBACK:
            init = _on_loopback(lab, spec, phone, control)
        else:
            init = _in_namespaces(lab, spec, phone, control)
        wire.send(control, {"booted": True})
        init.serve()
    except BaseException as error:  # noqa: BLE001 (a fork of the anchor must not continue as the anchor)
        traceback.print_exc()
        wire.send(control, {"error": f"{phone.name}: {error}"})
    finally:
        os._exit(1)


def _in_namespaces(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> PhoneInit:
    syscalls.unshare(_NAMESPACES)
    if child := os.fork():  # only a child is inside the new PID namespace; it becomes the anchor's
        wire.send(control, {"pid": child})
        os._exit(0)
    own = lab.phone(phone.name)
    paths = PhonePaths(Path("/"))
    _unpack_bootstrap(lab, own, phone, spec.mode)
    console = os.open(own.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    rootfs.build(lab.staging, phone, lab)
    wire.receive(control)
    links.configure(*links.inside(phone, spec.mode.network.prefixlen, spec.shape.rate, spec.phones))
    socket.sethostname("localhost")
    rootfs.enter(lab.staging)
    return PhoneInit(control, paths, user_switch(spec.mode, phone), ["sshd", "-D"], console)


def _on_loopback(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> PhoneInit:
    syscalls.set_child_subreaper()
    wire.send(control, {"pid": os.getpid()})
    own = lab.phone(phone.name)
    paths = PhonePaths(own.root)
    _unpack_bootstrap(lab, own, phone, spec.mode)
    console = os.open(own.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    wire.receive(control)
    sshd = ["sshd", "-D", "-o", f"ListenAddress={phone.address}"]
    return PhoneInit(control, paths, user_switch(spec.mode, phone), sshd, console)


def _unpack_bootstrap(lab: LabLayout, own: PhoneLayout, phone: VirtualPhone, mode: Mode) -> None:
    """Once: a phone that was switched off finds its data again."""
    if own.files.exists():
        return
    own.files.parent.mkdir(parents=True)
    shutil.copytree(lab.bootstrap, own.files, symlinks=True)
    make_host_key(own.files / "usr")
    if has_own_uid(mode):
        _give_to(own.files.parent, phone.uid)


def make_host_key(prefix: Path) -> None:
    """As openssh's postinst does, but ed25519 alone: RSA keys for a rack of phones would take a minute."""
    key = prefix / "etc/ssh/ssh_host_ed25519_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)


def _give_to(tree: Path, uid: int) -> None:
    os.chown(tree, uid, uid)
    for directory, subdirectories, names in os.walk(tree):
        for name in (*subdirectories, *names):
            os.chown(Path(directory, name), uid, uid, follow_symlinks=False)
