"""How a process on a virtual phone becomes the phone's only user, u0_aNNN, with no way back."""

from __future__ import annotations

import os
from collections.abc import Callable

from orchestrator.lab import syscalls, wire
from orchestrator.lab.namespaces import map_user
from orchestrator.lab.spec import Mode, VirtualPhone

ANDROID_GROUPS = (3003, 9997)  # inet, everybody


def has_own_uid(mode: Mode) -> bool:
    """Whether each phone has a uid of its own outside as well, as only root can arrange."""
    return mode is not Mode.USER and os.geteuid() == 0


def user_switch(mode: Mode, phone: VirtualPhone) -> Callable[[], None]:
    """Called in each new process of the phone, just before its program."""
    if mode is Mode.USER:
        return _mapped_user(phone.uid)
    if has_own_uid(mode):
        return lambda: _drop_to(phone.uid)
    return syscalls.set_no_new_privs


def _drop_to(uid: int) -> None:
    os.setgroups([uid, *ANDROID_GROUPS])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    syscalls.set_no_new_privs()


def _mapped_user(uid: int) -> Callable[[], None]:
    """Without root there is only one real uid: a further user namespace makes it look like the phone's."""
    namespace = _user_namespace(uid)

    def switch() -> None:
        syscalls.setns(namespace, syscalls.CLONE_NEWUSER)
        syscalls.set_no_new_privs()  # the capabilities that came with the namespace end with exec: uid is not 0

    return switch


def _user_namespace(uid: int) -> int:
    """A file that stands for a new user namespace in which this process's user is `uid`."""
    here, there = wire.pair()
    if (child := os.fork()) == 0:
        try:
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            map_user(uid, uid, outside_uid=0, outside_gid=0)
            wire.send(there, {"file": "user namespace"}, [os.open("/proc/self/ns/user", os.O_RDONLY)])
        finally:
            os._exit(0)
    there.close()
    with here:
        _, files = wire.receive(here)
    os.waitpid(child, 0)
    return files[0]
