"""How a process on a virtual phone becomes the phone's only user, u0_aNNN, with no way back."""

from __future__ import annotations

import os
from collections.abc import Callable

from orchestrator.lab import cables, syscalls
from orchestrator.lab.namespaces import map_user
from orchestrator.lab.seccomp import Refusals, restrict_to_android
from orchestrator.lab.spec import Mode, VirtualPhone

ANDROID_GROUPS = (3003, 9997)  # inet, everybody


def has_own_uid(mode: Mode) -> bool:
    """Whether each phone has a uid of its own outside as well, as only root can arrange."""
    return mode is not Mode.USER and os.geteuid() == 0


def user_switch(mode: Mode, phone: VirtualPhone, refusals: Callable[[], Refusals] = Refusals) -> Callable[[], None]:
    """What each new process of the phone calls just before its program starts."""
    namespace = _user_namespace(phone.uid) if mode is Mode.USER else None

    def switch() -> None:
        refused = refusals()
        if namespace is not None:
            syscalls.setns(namespace, syscalls.CLONE_NEWUSER)
        elif os.geteuid() == 0:
            _drop_to(phone.uid)
        syscalls.set_no_new_privs()  # and capabilities in a user namespace end with exec: the uid is not 0
        restrict_to_android(os.geteuid(), os.getegid(), refused)

    return switch


def _drop_to(uid: int) -> None:
    os.setgroups([uid, *ANDROID_GROUPS])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _user_namespace(uid: int) -> int:
    """A file that stands for a new user namespace in which this process's user is `uid`.

    Without root there is only one real uid; in there it looks like the phone's.
    """
    here, there = cables.pair()
    if (child := os.fork()) == 0:
        try:
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            map_user(uid, uid, outside_uid=0, outside_gid=0)
            cables.send(there, {"file": "user namespace"}, [os.open("/proc/self/ns/user", os.O_RDONLY)])
        finally:
            os._exit(0)
    there.close()
    with here:
        _, files = cables.receive(here)
    os.waitpid(child, 0)
    return files[0]
