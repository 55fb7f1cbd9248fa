"""Drop privileges to the phone's only user, u0_aNNN, irrevocably."""

from __future__ import annotations

import os
from collections.abc import Callable

from orchestrator.lab import ipc, syscalls
from orchestrator.lab.namespaces import map_user
from orchestrator.lab.seccomp import SeccompPolicy, install_filter
from orchestrator.lab.spec import Mode, VirtualPhone

ANDROID_GROUPS = (3003, 9997)  # inet, everybody


def has_own_uid(mode: Mode) -> bool:
    """Whether each phone has its own uid on the host as well. Only root can set that up."""
    return mode is not Mode.USER and os.geteuid() == 0


def make_user_switch(
    mode: Mode, phone: VirtualPhone, seccomp_policy: Callable[[], SeccompPolicy] = SeccompPolicy
) -> Callable[[], None]:
    """Return a function that each new process of the phone calls just before exec."""
    namespace = _user_namespace(phone.uid) if mode is Mode.USER else None

    def switch() -> None:
        policy = seccomp_policy()
        if namespace is not None:
            syscalls.setns(namespace, syscalls.CLONE_NEWUSER)
        elif os.geteuid() == 0:
            _drop_to(phone.uid)
        syscalls.set_no_new_privs()  # exec also drops the capabilities in the user namespace, because the uid is not 0
        install_filter(os.geteuid(), os.getegid(), policy)

    return switch


def _drop_to(uid: int) -> None:
    os.setgroups([uid, *ANDROID_GROUPS])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _user_namespace(uid: int) -> int:
    """Create a user namespace in which the current user appears as `uid`, and return a file descriptor for it.

    Without root there is only one real uid; inside this namespace it looks like the uid of the phone.
    """
    here, there = ipc.pair()
    if (child := os.fork()) == 0:
        try:
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            map_user(uid, uid, outside_uid=0, outside_gid=0)
            ipc.send(there, {"file": "user namespace"}, [os.open("/proc/self/ns/user", os.O_RDONLY)])
        finally:
            os._exit(0)
    there.close()
    with here:
        _, files = ipc.receive(here)
    os.waitpid(child, 0)
    return files[0]
