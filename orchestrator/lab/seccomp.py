"""System calls that answer on a virtual phone as they do on Android.

- A file cannot be given away: EPERM. In a user namespace this kernel would say EINVAL, which dpkg does not expect.
- The kernel has no System V IPC: ENOSYS, or death by SIGSYS where the app's filter gets to it first.
- Files have one name only, if the phone is told so: EACCES.
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
_UNCHANGED = 0xFFFFFFFF  # chown(-1): leave the owner as it is


@dataclass(frozen=True)
class _Table:
    audit: int  # AUDIT_ARCH_*
    chown: Mapping[int, int]  # number -> which argument is the uid; the gid follows
    system_v: tuple[int, ...]
    link: tuple[int, ...]


_TABLES = {
    "x86_64": _Table(0xC000003E, {92: 1, 93: 1, 94: 1, 260: 2}, (*range(29, 32), *range(64, 72)), (86, 265)),
    "aarch64": _Table(0xC00000B7, {55: 1, 54: 2}, (*range(186, 198),), (37,)),
}


@dataclass(frozen=True)
class Refusals:
    """What differs from phone to phone."""

    system_v_kills: bool = False
    hard_links: bool = False


def restrict_to_android(uid: int, gid: int, refused: Refusals) -> None:
    """For this process and all it starts. Needs no_new_privs. On other machines than these two nothing changes."""
    if table := _TABLES.get(platform.machine()):
        syscalls.set_seccomp_filter(b"".join(_program(table, uid, gid, refused)))


def _program(table: _Table, uid: int, gid: int, refused: Refusals) -> Iterator[bytes]:
    yield _instruction(_LOAD_WORD, _ARCHITECTURE)
    yield _instruction(_JUMP_IF_EQUAL, table.audit, 1, 0)
    yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_LOAD_WORD, _NUMBER)
    for number in table.system_v:
        yield _instruction(_JUMP_IF_EQUAL, number, 0, 1)
        yield _instruction(_RETURN, _KILL_PROCESS if refused.system_v_kills else _ERRNO | errno.ENOSYS)
    for number in table.link if refused.hard_links else ():
        yield _instruction(_JUMP_IF_EQUAL, number, 0, 1)
        yield _instruction(_RETURN, _ERRNO | errno.EACCES)
    for number, argument in table.chown.items():
        yield _instruction(_JUMP_IF_EQUAL, number, 0, 9)  # past the nine that follow
        yield from _only(argument, uid)
        yield from _only(argument + 1, gid)
        yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _ALLOW)


def _only(argument: int, value: int) -> Iterator[bytes]:
    """Goes on if the argument is `value` or says that nothing changes."""
    yield _instruction(_LOAD_WORD, _ARGUMENTS + 8 * argument)
    yield _instruction(_JUMP_IF_EQUAL, value, 2, 0)
    yield _instruction(_JUMP_IF_EQUAL, _UNCHANGED, 1, 0)
    yield _instruction(_RETURN, _ERRNO | errno.EPERM)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
