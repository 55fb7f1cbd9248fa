"""Checks of Android, its kernel, and what they hide from an app."""

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

from phone_agent.contract.assumptions import CheckResult, failed, ok, ok_if, unknown
from phone_agent.contract.errors import InternalError
from phone_agent.contract.files import read_text
from phone_agent.device.facts import getprop
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths
from phone_agent.selftest.isolated_check import run_isolated_check

ANDROID_VERSIONS = range(9, 13)
KERNEL = "4.14."
DOMAIN = "untrusted_app_27"
HIDDEN = ("stat", "uptime", "loadavg", "vmstat", "net/dev", "net/tcp")
SHOWN = ("meminfo", "cpuinfo", "self/status")
SYSTEM_CALLS = {
    "x86_64": {"memfd_create": 319, "shmget": 29, "shmctl": 31},
    "aarch64": {"memfd_create": 279, "shmget": 194, "shmctl": 195},
}
SIGSYS = 31
REFUSED = {errno.ENOSYS, errno.EACCES, errno.EPERM}


def android(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    names = ("ro.build.version.release", "ro.build.version.sdk", "ro.product.model", "ro.board.platform")
    properties = {name: getprop(name, paths) for name in names}
    release = properties["ro.build.version.release"]
    if release is None:
        return unknown("getprop reports no Android version", **properties)
    major = release.partition(".")[0]
    expected = major.isdigit() and int(major) in ANDROID_VERSIONS
    return ok_if(expected, f"Android {release} on {properties['ro.product.model']}", **properties)


def python() -> CheckResult:
    """Wheels and third-party code depend on these names."""
    names = {
        "version": platform.python_version(),
        "platform": sys.platform,
        "tag": sysconfig.get_platform(),
        "implementation": sys.implementation.cache_tag,
    }
    expected = sys.platform == ("android" if sys.version_info >= (3, 13) else "linux")
    return ok_if(expected, f"Python {names['version']} reports {sys.platform} ({names['tag']})", **names)


def kernel() -> CheckResult:
    uname = os.uname()
    return ok_if(
        uname.release.startswith(KERNEL), f"{uname.sysname} {uname.release} on {uname.machine}", version=uname.version
    )


def page_size() -> CheckResult:
    size = os.sysconf("SC_PAGE_SIZE")
    return ok_if(size == 4096, f"{size} bytes")


def selinux(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    context = (read_text(paths.proc / "self" / "attr" / "current") or "").strip("\0 \n")
    if context.count(":") < 2:
        return unknown(f"no SELinux context: {context!r}")
    return ok_if(context.split(":")[2] == DOMAIN, context)


def hidden_files(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    readable = {name: _readable(paths.proc / name) for name in (*HIDDEN, *SHOWN)}
    readable["/sys/class/power_supply"] = _readable(paths.sys / "class" / "power_supply")
    seen = [name for name in (*HIDDEN, "/sys/class/power_supply") if readable[name]]
    missing = [name for name in SHOWN if not readable[name]]
    detail = f"unexpectedly readable: {_listed(seen)}; unexpectedly hidden: {_listed(missing)}"
    return ok_if(not seen and not missing, detail, readable=readable)


def _readable(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else bool(path.read_bytes())
    except OSError:
        return False


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def memfd() -> CheckResult:
    """Uses the system call number: a Python built for an older Android has no os.memfd_create."""
    number = _call_number("memfd_create")
    if number is None:
        return unknown(f"no system call numbers known for {os.uname().machine}")
    handle = _call(number, ctypes.c_char_p(b"clusterctl"), 0)
    if handle < 0:
        return failed(f"memfd_create: {os.strerror(ctypes.get_errno())}")
    with os.fdopen(handle, "r+b") as file:
        file.write(b"in memory")
        file.seek(0)
        return ok_if(file.read() == b"in memory", "memfd_create creates an in-memory file")


def shared_memory() -> CheckResult:
    block = SharedMemory(create=True, size=4096)
    try:
        _buffer(block)[:5] = b"hello"
        second = SharedMemory(name=block.name)
        value = bytes(_buffer(second)[:5])
        second.close()
    finally:
        block.close()
        block.unlink()
    return ok_if(value == b"hello", "two mappings of one block share the same bytes", tmpdir=os.environ.get("TMPDIR"))


def _buffer(block: SharedMemory) -> memoryview:
    if block.buf is None:
        raise InternalError("the shared memory is already closed")
    return block.buf


def sysv_shm() -> CheckResult:
    """Tries it in a separate process: the kernel may kill the caller."""
    get, control = _call_number("shmget"), _call_number("shmctl")
    if get is None or control is None:
        return unknown(f"no system call numbers known for {os.uname().machine}")
    result = run_isolated_check(lambda: _get_segment(get, control), 5)
    if result.evidence.get("signal") == SIGSYS:
        return ok("using System V shared memory kills the process (SIGSYS)", how="killed")
    return result


def _get_segment(get: int, control: int) -> CheckResult:
    private, created, remove = 0, 0o1600, 0
    segment = _call(get, private, 4096, created)
    if segment >= 0:
        _call(control, segment, remove, None)
        return failed("System V shared memory works", how="works")
    code = ctypes.get_errno()
    return ok_if(code in REFUSED, f"System V shared memory is refused: {os.strerror(code)}", how="refused")


def _call_number(name: str) -> int | None:
    return SYSTEM_CALLS.get(os.uname().machine, {}).get(name)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(number, *arguments))
