"""Files of the phone that are hidden or replaced by bind mounts, and libraries preloaded into its programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from orchestrator.lab import syscalls
from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.rootfs import HOST_BIN, MASKED_PROC
from orchestrator.lab.termux import read_setting

_DENIED, _EMPTY = Path("/apex/denied"), Path("/apex/empty")
_CANNOT_LINK = Path("/system/bin/cannot-link")
_BROKEN_PROGRAMS = ("python3", "orterun")
_VENDOR_LIBRARIES = Path("/system/vendor/lib64")
_PRELOADED = "ld.so.preload"  # in the scenario directory; /etc/ld.so.preload is a symlink to it


def prepare(root: Path) -> None:
    """Create symlinks before the phone's root becomes read-only."""
    (root / "etc" / _PRELOADED).symlink_to(PhonePaths(Path("/")).scenario / _PRELOADED)
    (root / "vendor").symlink_to("system/vendor")


def hide_proc(scenario: Path) -> None:
    """Hide /proc/stat and similar files. /proc/net exists per process, so hiding it takes a preloaded library."""
    is_open = read_setting(scenario, "proc") == "open"
    for name in MASKED_PROC:
        _mask(Path("/proc") / name, None if is_open else _DENIED)


def write_preload(paths: PhonePaths) -> None:
    """Write the list of libraries that are preloaded into every program of the phone."""
    libraries = {
        "libclock.so": float(read_setting(paths.scenario, "clock")) != 0,
        "libproc-net.so": read_setting(paths.scenario, "proc") == "strict",
    }
    lines = [f"{paths.prefix}/libexec/lab/{library}\n" for library, enabled in libraries.items() if enabled]
    file = paths.scenario / _PRELOADED
    if not lines:
        file.unlink(missing_ok=True)
        return
    temporary = file.with_name(f".{file.name}")
    temporary.write_text("".join(lines))
    temporary.chmod(0o644)
    temporary.replace(file)


def break_linker(scenario: Path) -> None:
    """Make python3 and mpirun fail as if a library was missing, with the error message of Android's linker."""
    broken = read_setting(scenario, "linker") == "broken"
    for program in _programs(_BROKEN_PROGRAMS):
        _mask(program, _CANNOT_LINK if broken else None)


def hide_opencl(scenario: Path) -> None:
    _mask(_VENDOR_LIBRARIES, _EMPTY if read_setting(scenario, "opencl") == "no-library" else None)


def _programs(names: Iterable[str]) -> list[Path]:
    paths = (Path(HOST_BIN) / name for name in names)
    return [path.resolve() for path in paths if path.exists()]


def _mask(path: Path, replacement: Path | None) -> None:
    """Bind-mount `replacement` over `path`, or only remove an earlier mount if it is None. Idempotent."""
    with contextlib.suppress(OSError):  # not mounted
        syscalls.unmount(path)
    if replacement is not None:
        syscalls.mount(replacement, path, None, syscalls.MS_BIND)
