"""Namespaces: how the lab's first process gets its own, as root or in a user namespace."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.lab import syscalls
from orchestrator.lab.spec import Mode

_LAB = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID


def enter_lab(mode: Mode) -> None:
    """Returns in a child: process 1 of new PID, network and mount namespaces. The parent ends."""
    if mode is Mode.USER:
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        map_user(0, 0, outside_uid=uid, outside_gid=gid)
    syscalls.unshare(_LAB)
    if os.fork():
        os._exit(0)
    syscalls.mount(None, Path("/"), None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", Path("/proc"), "proc", flags)


def map_user(uid: int, gid: int, *, outside_uid: int, outside_gid: int) -> None:
    """In a new user namespace: the one user we are outside is known as `uid` in here."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside_gid} 1")
