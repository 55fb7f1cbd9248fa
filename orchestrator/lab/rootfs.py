"""A phone's root file system: the paths of Android and Termux, and nothing of the host that a phone would not have.

The programs come from the host, or from an arm64 userland. /usr is mounted read-only, with its bin directories masked
because Android has none. They are mounted again under /apex/host, to which only Termux's links point.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.lab import syscalls
from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.spec import VirtualPhone
from orchestrator.lab.syscalls import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT

HOST_BIN = "/apex/host/bin"
HOST_SBIN = "/apex/host/sbin"

_MASKED_DIRECTORIES = ("usr/bin", "usr/sbin", "usr/local", "usr/games")
MASKED_PROC = ("stat", "uptime", "loadavg", "vmstat")  # SELinux denies these to apps on Android 9 to 12
_SHARED_ETC = ("alternatives", "ld.so.cache", "openmpi", "mime.types")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_STATVFS_TO_MOUNT = (  # a bind mount must keep the restrictions of its source
    (os.ST_NOSUID, MS_NOSUID),
    (os.ST_NODEV, MS_NODEV),
    (os.ST_NOEXEC, MS_NOEXEC),
)


def build(root: Path, phone: VirtualPhone, lab: LabLayout) -> None:
    """Mount the phone's file system on `root`. Must be called in the phone's mount and PID namespaces."""
    syscalls.mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
    userland = lab.userland.resolve()
    _mount_programs(root, userland)
    _write_etc(root / "etc", phone, userland / "etc")
    _make_devices(root / "dev")
    _mount_proc(root / "proc")
    _bind_read_only(Path("/sys/devices/system/cpu"), root / "sys/devices/system/cpu")
    files = lab.phone(phone.name)
    _bind_read_only(files.sys_class, root / "sys/class")
    _bind_read_only(lab.system, root / "system")
    _bind(files.scenario, PhonePaths(root).scenario)
    _bind(files.data, root / "data")


def enter(root: Path) -> None:
    """Make `root` the root directory of this process, read-only."""
    os.chdir(root)
    syscalls.pivot_root(Path(), Path())
    syscalls.unmount(Path(), syscalls.MNT_DETACH)  # the old root, which is stacked on the new one
    os.chdir("/")
    syscalls.mount(None, Path("/"), None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _mount_programs(root: Path, userland: Path) -> None:
    _bind_read_only(userland / "usr/bin", root / HOST_BIN[1:])
    _bind_read_only(userland / "usr/sbin", root / HOST_SBIN[1:])
    (root / "apex/host/share").symlink_to("/usr/share")  # cmake expects its data relative to its own path
    _bind_read_only(userland / "usr", root / "usr")
    empty = root / "apex/empty"
    empty.mkdir()
    for masked in _MASKED_DIRECTORIES:
        if (root / masked).is_dir():
            _bind_read_only(empty, root / masked)
    for library in userland.glob("lib*"):
        if library.is_symlink():
            (root / library.name).symlink_to(library.readlink())
        elif library.is_dir():
            _bind_read_only(library, root / library.name)


def _write_etc(etc: Path, phone: VirtualPhone, source_etc: Path) -> None:
    etc.mkdir()
    paths = PhonePaths(Path("/"))
    identity = f"{phone.user}:x:{phone.uid}:{phone.uid}"
    (etc / "passwd").write_text(f"{identity}::{paths.home}:{paths.prefix}/bin/login\n")
    (etc / "group").write_text(
        f"{phone.user}:x:{phone.uid}:\ninet:x:3003:{phone.user}\neverybody:x:9997:{phone.user}\n"
    )
    (etc / "hosts").write_text("127.0.0.1 localhost\n::1 ip6-localhost\n")
    (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for shared in _SHARED_ETC:
        if (source := source_etc / shared).exists():
            _bind_read_only(source, etc / shared)


def _make_devices(dev: Path) -> None:
    dev.mkdir()
    for name in _DEVICES:
        _bind(Path("/dev") / name, dev / name)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(f"/proc/self/{target}")
    (dev / "pts").mkdir()
    syscalls.mount("devpts", dev / "pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=600")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "shm").mkdir()


def _mount_proc(proc: Path) -> None:
    proc.mkdir()
    denied = proc.parent / "apex/denied"
    denied.touch(mode=0)
    syscalls.mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2")
    for name in MASKED_PROC:
        syscalls.mount(denied, proc / name, None, MS_BIND)


def _bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.touch()
    syscalls.mount(source, target, None, MS_BIND | MS_REC)


def _bind_read_only(source: Path, target: Path) -> None:
    _bind(source, target)
    present = os.statvfs(target).f_flag
    flags = sum(mount_flag for statvfs_flag, mount_flag in _STATVFS_TO_MOUNT if present & statvfs_flag)
    syscalls.mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
