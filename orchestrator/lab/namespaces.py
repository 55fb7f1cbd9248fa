"""Namespaces: how the lab's first process gets its own, as root or in a user namespace."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from orchestrator.lab import syscalls
from orchestrator.lab.arch import emulator
from orchestrator.lab.shape import Arch
from orchestrator.lab.spec import Mode

_ALL_USERS = 0xFFFFFFFF
_LAB = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID


def enter_lab(mode: Mode, arch: Arch) -> None:
    """Returns in a child: process 1 of new PID, network and mount namespaces. The parent ends.

    Emulated phones take a user namespace as well, for only those have program formats of their own.
    """
    own_formats = arch.is_emulated and not emulator.is_registered_here()
    if mode is Mode.ROOT and own_formats:
        _keep_users()
    elif mode is Mode.USER:
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        map_user(0, 0, outside_uid=uid, outside_gid=gid)
    syscalls.unshare(_LAB)
    if os.fork():
        os._exit(0)
    syscalls.mount(None, Path("/"), None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", Path("/proc"), "proc", flags)
    if own_formats:
        emulator.register()


def _keep_users() -> None:
    """A new user namespace in which everybody is who they are outside. Only somebody outside may say so: a child."""
    entered, enter = os.pipe()
    if (child := os.fork()) == 0:
        os.close(enter)
        os.read(entered, 1)
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{os.getppid()}/{kind}").write_text(f"0 0 {_ALL_USERS}")
        os._exit(0)
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    os.close(enter)
    os.close(entered)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(errno.EPERM, "users cannot be mapped into a new user namespace")


def map_user(uid: int, gid: int, *, outside_uid: int, outside_gid: int) -> None:
    """In a new user namespace: the one user we are outside is known as `uid` in here."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside_gid} 1")
