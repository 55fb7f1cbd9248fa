"""From a fork of the anchor to a running phone."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from orchestrator.lab import cables, links, lock, rootfs, syscalls
from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.identity import has_own_uid, user_switch
from orchestrator.lab.init import PhoneInit
from orchestrator.lab.layout import LabLayout, PhoneLayout
from orchestrator.lab.processes import forget_parent
from orchestrator.lab.quirks import Habits, masks
from orchestrator.lab.quirks.cores import Cores
from orchestrator.lab.quirks.network import Wiring
from orchestrator.lab.quirks.phantom import PhantomKiller
from orchestrator.lab.spec import LabSpec, Mode, VirtualPhone
from orchestrator.lab.template import make_host_keys

_PHONE = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID
)


def start(lab: LabLayout, spec: LabSpec, phone: VirtualPhone) -> socket.socket:
    """Forks the phone off. It says {"pid": …}, waits for its cable, then says {"booted": true} or {"error": …}."""
    here, there = cables.pair()
    if os.fork() == 0:
        _become(lab, spec, phone, there)
    there.close()
    return here


def _become(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> NoReturn:
    try:
        forget_parent(control.fileno())
        os.sched_setaffinity(0, cores_of(spec.phones.index(phone), len(spec.phones), sorted(os.sched_getaffinity(0))))
        put_together = _on_loopback if spec.mode is Mode.LOOPBACK else _in_namespaces
        init = put_together(lab, spec, phone, control)
        cables.send(control, {"booted": True})
        init.serve()
    except BaseException as error:  # noqa: BLE001 (a fork of the anchor must not go on as the anchor)
        traceback.print_exc()
        with contextlib.suppress(OSError):
            cables.send(control, {"error": f"{phone.name}: {error}"})
    finally:
        os._exit(1)


def cores_of(index: int, phones: int, cores: Sequence[int]) -> set[int]:
    """This computer's cores dealt out in turn: else each phone's agent would start a thread on every one of them."""
    share = max(1, len(cores) // phones)
    return {cores[(index * share + offset) % len(cores)] for offset in range(share)}


def _in_namespaces(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> PhoneInit:
    syscalls.unshare(_PHONE)
    if child := os.fork():  # only a child is inside the new PID namespace; the anchor inherits it
        cables.send(control, {"pid": child})
        os._exit(0)
    own = lab.phone(phone.name)
    if not own.termux.exists():  # a phone that was switched off finds its data again
        _unpack(lab, own, phone, spec.mode)
    console = _open_console(own)
    rootfs.build(lab.staging, phone, lab)
    masks.prepare(lab.staging)
    cables.receive(control)
    links.configure(*links.inside(phone, spec.mode.network.prefixlen, spec.shape.rate, spec.phones))
    if not (wiring := Wiring(spec, phone, own.scenario)).is_healthy:
        wiring.apply()
    socket.sethostname("localhost")
    rootfs.enter(lab.staging)
    return _init(PhonePaths(Path("/")), spec, phone, control, console)


def _on_loopback(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> PhoneInit:
    syscalls.set_child_subreaper()
    lock.hold(lab.phones_lock, shared=True)
    cables.send(control, {"pid": os.getpid()})
    own = lab.phone(phone.name)
    if has_own_uid(spec.mode):
        _give_to(own.termux, phone.uid)
    cables.receive(control)
    return _init(PhonePaths(own.root), spec, phone, control, _open_console(own))


def _init(paths: PhonePaths, spec: LabSpec, phone: VirtualPhone, control: socket.socket, console: int) -> PhoneInit:
    habits = Habits(
        paths,
        Cores(frozenset(os.sched_getaffinity(0))),
        PhantomKiller(paths.scenario / "logcat", phone.user),
        has_namespaces=spec.mode is not Mode.LOOPBACK,
    )
    return PhoneInit(control, paths, user_switch(spec.mode, phone, habits.refusals), console, habits)


def _unpack(lab: LabLayout, own: PhoneLayout, phone: VirtualPhone, mode: Mode) -> None:
    own.termux.parent.mkdir(mode=0o751)
    subprocess.run(["cp", "-a", lab.termux, own.termux], check=True)
    make_host_keys(own.termux)
    own.termux.chmod(0o700)
    if has_own_uid(mode):
        _give_to(own.termux, phone.uid)


def _open_console(own: PhoneLayout) -> int:
    return os.open(own.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _give_to(tree: Path, uid: int) -> None:
    subprocess.run(["chown", "-hR", f"{uid}:{uid}", tree], check=True)
