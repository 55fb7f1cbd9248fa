"""Start a phone: fork the daemon, create the phone's namespaces, and run its init."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from orchestrator import process_lock
from orchestrator.lab import ipc, links, rootfs, syscalls
from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.identity import has_own_uid, make_user_switch
from orchestrator.lab.init import PhoneInit
from orchestrator.lab.layout import LabLayout, PhoneLayout
from orchestrator.lab.processes import close_inherited
from orchestrator.lab.quirks import Quirks, masks
from orchestrator.lab.quirks.cores import PhoneCores
from orchestrator.lab.quirks.network import NetworkQuirks
from orchestrator.lab.quirks.phantom import PhantomKiller
from orchestrator.lab.spec import LabSpec, Mode, VirtualPhone
from orchestrator.lab.template import make_host_keys

_PHONE_NAMESPACES = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID
)


def fork_phone(lab: LabLayout, spec: LabSpec, phone: VirtualPhone) -> socket.socket:
    """Fork a phone process and return its control socket.

    The phone sends {"pid": …}, waits until its network link exists, then sends {"booted": true} or {"error": …}.
    """
    here, there = ipc.pair()
    if os.fork() == 0:
        _run_phone(lab, spec, phone, there)
    there.close()
    return here


def _run_phone(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> NoReturn:
    try:
        close_inherited(control.fileno())
        os.sched_setaffinity(
            0, assign_cores(spec.phones.index(phone), len(spec.phones), sorted(os.sched_getaffinity(0)))
        )
        build = _build_on_loopback if spec.mode is Mode.LOOPBACK else _build_in_namespaces
        init = build(lab, spec, phone, control)
        ipc.send(control, {"booted": True})
        init.serve()
    except BaseException as error:  # noqa: BLE001 (a forked child must never continue as the daemon)
        traceback.print_exc()
        with contextlib.suppress(OSError):
            ipc.send(control, {"error": f"{phone.name}: {error}"})
    finally:
        os._exit(1)


def assign_cores(index: int, phones: int, cores: Sequence[int]) -> set[int]:
    """Divide the host's cores among the phones. Otherwise every agent would start a thread on each of them."""
    per_phone = max(1, len(cores) // phones)
    return {cores[(index * per_phone + offset) % len(cores)] for offset in range(per_phone)}


def _build_in_namespaces(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> PhoneInit:
    syscalls.unshare(_PHONE_NAMESPACES)
    if child := os.fork():  # only the child is in the new PID namespace; the daemon adopts it
        ipc.send(control, {"pid": child})
        os._exit(0)
    files = lab.phone(phone.name)
    if not files.termux.exists():  # a phone that was powered off keeps its data
        _install_termux(lab, files, phone, spec.mode)
    console = _open_console(files)
    rootfs.build(lab.staging, phone, lab)
    masks.prepare(lab.staging)
    ipc.receive(control)
    links.configure(*links.phone_commands(phone, spec.mode.network.prefixlen, spec.config.rate, spec.phones))
    if not (network_quirks := NetworkQuirks(spec, phone, files.scenario)).is_default:
        network_quirks.apply()
    socket.sethostname("localhost")
    rootfs.enter(lab.staging)
    return _make_init(PhonePaths(Path("/")), spec, phone, control, console)


def _build_on_loopback(lab: LabLayout, spec: LabSpec, phone: VirtualPhone, control: socket.socket) -> PhoneInit:
    syscalls.set_child_subreaper()
    process_lock.acquire(lab.phones_lock, shared=True)
    ipc.send(control, {"pid": os.getpid()})
    files = lab.phone(phone.name)
    if has_own_uid(spec.mode):
        _chown(files.termux, phone.uid)
    ipc.receive(control)
    return _make_init(PhonePaths(files.root), spec, phone, control, _open_console(files))


def _make_init(
    paths: PhonePaths, spec: LabSpec, phone: VirtualPhone, control: socket.socket, console: int
) -> PhoneInit:
    quirks = Quirks(
        paths,
        PhoneCores(frozenset(os.sched_getaffinity(0))),
        PhantomKiller(paths.scenario / "logcat", phone.user),
        has_namespaces=spec.mode is not Mode.LOOPBACK,
    )
    return PhoneInit(control, paths, make_user_switch(spec.mode, phone, quirks.seccomp_policy), console, quirks)


def _install_termux(lab: LabLayout, files: PhoneLayout, phone: VirtualPhone, mode: Mode) -> None:
    files.termux.parent.mkdir(mode=0o751)
    subprocess.run(["cp", "-a", lab.termux, files.termux], check=True)
    make_host_keys(files.termux)
    files.termux.chmod(0o700)
    if has_own_uid(mode):
        _chown(files.termux, phone.uid)


def _open_console(files: PhoneLayout) -> int:
    return os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _chown(tree: Path, uid: int) -> None:
    subprocess.run(["chown", "-hR", f"{uid}:{uid}", tree], check=True)
