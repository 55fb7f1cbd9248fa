"""The Android files of a phone: /system, /vendor, /sys/class/thermal, and the Termux:API app."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from orchestrator.lab.termux.catalog import HERE
from orchestrator.lab.termux.host import HostPrograms
from orchestrator.lab.termux.scenario import write_defaults
from orchestrator.lab.termux.shims import compile_shim

# The programs of toybox and toolbox on Android, as far as the host has them.
_TOOLS = ("cat", "date", "df", "echo", "grep", "id", "ip", "kill", "ls", "mount", "ping", "ps", "sleep", "uname")

_LOADER = "libOpenCL.so.1"
_DRIVERS = Path("/etc/OpenCL/vendors")


def write_system(system: Path, sys_class: Path, scenario: Path, host: HostPrograms) -> None:
    """Write the replacements for Android programs, and the settings of a healthy phone.

    On the phone, `scenario` must have the same path relative to `system` as here.
    """
    binaries = system / "bin"
    binaries.mkdir(parents=True)
    (binaries / "sh").symlink_to(host.program("dash"))
    for tool in _TOOLS:
        if found := host.find(tool):
            (binaries / tool).symlink_to(found)
    for template in sorted((HERE / "android").iterdir()):
        _write_script(binaries / template.name, template.read_text(), os.path.relpath(scenario, binaries), host)
    _write_vendor(system / "vendor", host)
    write_defaults(scenario, sys_class)


def _write_vendor(vendor: Path, host: HostPrograms) -> None:
    """The OpenCL driver: that of the host (PoCL), or one without devices if the phone cannot use it."""
    drivers = sorted(_DRIVERS.glob("*.icd")) if host.is_native and _has_loader() else []
    flags = ("-DFORWARDED", "-Wl,--no-as-needed", f"-l:{_LOADER}") if drivers else ()
    library = vendor / "lib64" / "libOpenCL.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(compile_shim("opencl.c", host, ("-Wl,-soname,libOpenCL.so", *flags)))
    listed = vendor / "etc" / "OpenCL" / "vendors"
    listed.mkdir(parents=True)
    for driver in drivers:
        (listed / driver.name).write_bytes(driver.read_bytes())


def _has_loader() -> bool:
    try:
        ctypes.CDLL(_LOADER)
    except OSError:
        return False
    return True


def _write_script(path: Path, template: str, scenario: str, host: HostPrograms) -> None:
    text = template.replace("@SH@", host.program("dash")).replace("@SCENARIO@", f"${{0%/*}}/{scenario}")
    path.write_text(text)
    path.chmod(0o755)
