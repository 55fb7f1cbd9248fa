"""What is hidden from a phone's processes, or put in another's place, by mounts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from orchestrator.lab import syscalls
from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.rootfs import HOST_BIN, MASKED_PROC
from orchestrator.lab.termux import told

_DENIED, _EMPTY = Path("/apex/denied"), Path("/apex/empty")
_CANNOT_LINK = Path("/system/bin/cannot-link")
_NEEDING_A_LIBRARY = ("python3", "orterun")
_VENDOR_LIBRARIES = Path("/system/vendor/lib64")
_PRELOADED = "ld.so.preload"  # in the scenario; /etc/ld.so.preload leads there


def prepare(root: Path) -> None:
    """Places that cannot be made any more once the phone's root is read-only."""
    (root / "etc" / _PRELOADED).symlink_to(PhonePaths(Path("/")).scenario / _PRELOADED)
    (root / "vendor").symlink_to("system/vendor")


def hide_proc(scenario: Path) -> None:
    """/proc/stat and its like. /proc/net, a directory of every process, takes a preloaded library."""
    is_open = told(scenario, "proc") == "open"
    for name in MASKED_PROC:
        _cover(Path("/proc") / name, None if is_open else _DENIED)


def preload(paths: PhonePaths) -> None:
    """Libraries that every program of the phone is loaded with."""
    wanted = {
        "libclock.so": float(told(paths.scenario, "clock")) != 0,
        "libproc-net.so": told(paths.scenario, "proc") == "strict",
    }
    lines = [f"{paths.prefix}/libexec/lab/{library}\n" for library, is_wanted in wanted.items() if is_wanted]
    file = paths.scenario / _PRELOADED
    if not lines:
        file.unlink(missing_ok=True)
        return
    fresh = file.with_name(f".{file.name}")
    fresh.write_text("".join(lines))
    fresh.chmod(0o644)
    fresh.replace(file)


def break_linker(scenario: Path) -> None:
    """python3 and mpirun miss a library: Android's linker says so, and they do not start."""
    broken = told(scenario, "linker") == "broken"
    for program in _programs(_NEEDING_A_LIBRARY):
        _cover(program, _CANNOT_LINK if broken else None)


def hide_opencl(scenario: Path) -> None:
    _cover(_VENDOR_LIBRARIES, _EMPTY if told(scenario, "opencl") == "missing" else None)


def _programs(names: Iterable[str]) -> list[Path]:
    places = (Path(HOST_BIN) / name for name in names)
    return [place.resolve() for place in places if place.exists()]


def _cover(place: Path, cover: Path | None) -> None:
    """Twice is once: what covers it already is taken away first."""
    with contextlib.suppress(OSError):  # nothing does
        syscalls.unmount(place)
    if cover is not None:
        syscalls.mount(cover, place, None, syscalls.MS_BIND)
