"""Create the namespaces of the lab, as root or in a user namespace."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from orchestrator.lab import syscalls
from orchestrator.lab.arch import emulator
from orchestrator.lab.config import Arch
from orchestrator.lab.spec import Mode

_ALL_USERS = 0xFFFFFFFF
_LAB = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID


def create_lab_namespaces(mode: Mode, arch: Arch) -> None:
    """Return in a child that is process 1 of new PID, network and mount namespaces. The parent exits.

    Emulation also needs a user namespace, because binfmt_misc registrations are separate per user namespace.
    """
    own_binfmt = arch.is_emulated and not emulator.is_registered_on_host()
    if mode is Mode.ROOT and own_binfmt:
        _create_identity_user_namespace()
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
    if own_binfmt:
        emulator.register()


def _create_identity_user_namespace() -> None:
    """Enter a new user namespace that maps every uid to itself.

    The maps must be written from outside the namespace, so a child process does it.
    """
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
        raise OSError(errno.EPERM, "cannot map uids into a new user namespace")


def map_user(uid: int, gid: int, *, outside_uid: int, outside_gid: int) -> None:
    """Map the current user to `uid` in the new user namespace of this process."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside_gid} 1")
