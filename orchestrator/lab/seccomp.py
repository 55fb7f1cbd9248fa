"""Seccomp filter that makes system calls behave as on Android.

- chown to another user fails with EPERM. In a user namespace Linux returns EINVAL, which dpkg does not expect.
- System V IPC fails with ENOSYS or, on phones whose app filter blocks it, kills the process with SIGSYS.
- Hard links fail with EACCES if the phone is configured so.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.lab import syscalls

_KILL_PROCESS = 0x80000000
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_UNCHANGED = 0xFFFFFFFF  # chown(-1) keeps the owner


@dataclass(frozen=True)
class _SyscallTable:
    audit: int  # AUDIT_ARCH_*
    chown: Mapping[int, int]  # syscall number -> index of the uid argument; the gid follows
    sysv_ipc: tuple[int, ...]
    link: tuple[int, ...]


_SYSCALL_TABLES = {
    "x86_64": _SyscallTable(0xC000003E, {92: 1, 93: 1, 94: 1, 260: 2}, (*range(29, 32), *range(64, 72)), (86, 265)),
    "aarch64": _SyscallTable(0xC00000B7, {55: 1, 54: 2}, (*range(186, 198),), (37,)),
}


@dataclass(frozen=True)
class SeccompPolicy:
    """The part of the filter that is configurable per phone."""

    sysv_ipc_kills: bool = False
    deny_hard_links: bool = False


def install_filter(uid: int, gid: int, policy: SeccompPolicy) -> None:
    """Install the filter for this process and its children. Requires no_new_privs. No-op on other architectures."""
    if table := _SYSCALL_TABLES.get(platform.machine()):
        syscalls.set_seccomp_filter(b"".join(_program(table, uid, gid, policy)))


def _program(table: _SyscallTable, uid: int, gid: int, policy: SeccompPolicy) -> Iterator[bytes]:
    yield _instruction(_LOAD_WORD, _ARCHITECTURE)
    yield _instruction(_JUMP_IF_EQUAL, table.audit, 1, 0)
    yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_LOAD_WORD, _NUMBER)
    for number in table.sysv_ipc:
        yield _instruction(_JUMP_IF_EQUAL, number, 0, 1)
        yield _instruction(_RETURN, _KILL_PROCESS if policy.sysv_ipc_kills else _ERRNO | errno.ENOSYS)
    for number in table.link if policy.deny_hard_links else ():
        yield _instruction(_JUMP_IF_EQUAL, number, 0, 1)
        yield _instruction(_RETURN, _ERRNO | errno.EACCES)
    for number, argument in table.chown.items():
        yield _instruction(_JUMP_IF_EQUAL, number, 0, 9)  # skip the nine instructions below
        yield from _deny_unless(argument, uid)
        yield from _deny_unless(argument + 1, gid)
        yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _ALLOW)


def _deny_unless(argument: int, value: int) -> Iterator[bytes]:
    """Continue if the argument is `value` or -1 (unchanged); otherwise fail with EPERM."""
    yield _instruction(_LOAD_WORD, _ARGUMENTS + 8 * argument)
    yield _instruction(_JUMP_IF_EQUAL, value, 2, 0)
    yield _instruction(_JUMP_IF_EQUAL, _UNCHANGED, 1, 0)
    yield _instruction(_RETURN, _ERRNO | errno.EPERM)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
