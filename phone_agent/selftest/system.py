"""What the phone runs: Android, its kernel, what it hides from an application."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import sysconfig
from collections.abc import Iterable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from phone_agent.contract.assumptions import Found, failed, judged, ok, unknown
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.files import read_text
from phone_agent.device.facts import getprop
from phone_agent.device.roots import REAL, Roots
from phone_agent.selftest.bounded import bounded

KNOWN_ANDROIDS = range(9, 13)
KERNEL = "4.14."
DOMAIN = "untrusted_app_27"
HIDDEN = ("stat", "uptime", "loadavg", "vmstat", "net/dev", "net/tcp")
SHOWN = ("meminfo", "cpuinfo", "self/status")
SYSTEM_CALLS = {
    "x86_64": {"memfd_create": 319, "shmget": 29, "shmctl": 31},
    "aarch64": {"memfd_create": 279, "shmget": 194, "shmctl": 195},
}
SIGSYS = 31
NOT_THERE = {errno.ENOSYS, errno.EACCES, errno.EPERM}


def android(roots: Roots = REAL) -> Found:
    names = ("ro.build.version.release", "ro.build.version.sdk", "ro.product.model", "ro.board.platform")
    told = {name: getprop(name, roots) for name in names}
    release = told["ro.build.version.release"]
    if release is None:
        return unknown("getprop tells no Android version", **told)
    major = release.partition(".")[0]
    expected = major.isdigit() and int(major) in KNOWN_ANDROIDS
    return judged(expected, f"Android {release} on {told['ro.product.model']}", **told)


def python() -> Found:
    """Wheels, and much code of others, go by these names."""
    told = {
        "version": platform.python_version(),
        "platform": sys.platform,
        "tag": sysconfig.get_platform(),
        "implementation": sys.implementation.cache_tag,
    }
    expected = sys.platform == ("android" if sys.version_info >= (3, 13) else "linux")
    return judged(expected, f"Python {told['version']} says it is on {sys.platform} ({told['tag']})", **told)


def kernel() -> Found:
    told = os.uname()
    return judged(
        told.release.startswith(KERNEL), f"{told.sysname} {told.release} on {told.machine}", version=told.version
    )


def page_size() -> Found:
    size = os.sysconf("SC_PAGE_SIZE")
    return judged(size == 4096, f"{size} bytes")


def selinux(roots: Roots = REAL) -> Found:
    context = (read_text(roots.proc / "self" / "attr" / "current") or "").strip("\0 \n")
    if context.count(":") < 2:
        return unknown(f"no SELinux context: {context!r}")
    return judged(context.split(":")[2] == DOMAIN, context)


def hidden_files(roots: Roots = REAL) -> Found:
    readable = {name: _readable(roots.proc / name) for name in (*HIDDEN, *SHOWN)}
    readable["/sys/class/power_supply"] = _readable(roots.sys / "class" / "power_supply")
    seen = [name for name in (*HIDDEN, "/sys/class/power_supply") if readable[name]]
    missing = [name for name in SHOWN if not readable[name]]
    told = f"readable though we say hidden: {_listed(seen)}; hidden though we need it: {_listed(missing)}"
    return judged(not seen and not missing, told, readable=readable)


def _readable(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else bool(path.read_bytes())
    except OSError:
        return False


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def memory_file() -> Found:
    """By number: a Python built for an older Android has no os.memfd_create."""
    number = _call_number("memfd_create")
    if number is None:
        return unknown(f"no system call numbers for {os.uname().machine} here")
    handle = _call(number, ctypes.c_char_p(b"clusterctl"), 0)
    if handle < 0:
        return failed(f"memfd_create: {os.strerror(ctypes.get_errno())}")
    with os.fdopen(handle, "r+b") as file:
        file.write(b"kept in memory")
        file.seek(0)
        return judged(file.read() == b"kept in memory", "memfd_create gives a file in memory")


def shared_memory() -> Found:
    block = SharedMemory(create=True, size=4096)
    try:
        _shown(block)[:5] = b"hello"
        again = SharedMemory(name=block.name)
        told = bytes(_shown(again)[:5])
        again.close()
    finally:
        block.close()
        block.unlink()
    return judged(told == b"hello", "two mappings of one block show the same bytes", tmpdir=os.environ.get("TMPDIR"))


def _shown(block: SharedMemory) -> memoryview:
    if block.buf is None:
        raise AgentError("the shared memory is closed already", code=ErrorCode.INTERNAL_ERROR)
    return block.buf


def system_v() -> Found:
    """In a process of its own within this one's: the kernel may kill who asks."""
    get, control = _call_number("shmget"), _call_number("shmctl")
    if get is None or control is None:
        return unknown(f"no system call numbers for {os.uname().machine} here")
    found = bounded(lambda: _get_segment(get, control), 5)
    if found.evidence.get("signal") == SIGSYS:
        return ok("asking for System V shared memory kills (SIGSYS)", how="killed")
    return found


def _get_segment(get: int, control: int) -> Found:
    private, created, remove = 0, 0o1600, 0
    segment = _call(get, private, 4096, created)
    if segment >= 0:
        _call(control, segment, remove, None)
        return failed("System V shared memory works", how="works")
    code = ctypes.get_errno()
    return judged(code in NOT_THERE, f"System V shared memory is refused: {os.strerror(code)}", how="refused")


def _call_number(name: str) -> int | None:
    return SYSTEM_CALLS.get(os.uname().machine, {}).get(name)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(number, *arguments))
