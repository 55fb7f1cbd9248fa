"""Android's side of a phone: /system, /vendor, /sys/class/thermal, and the app behind Termux:API."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from orchestrator.lab.termux.catalogue import HERE
from orchestrator.lab.termux.host import HostPrograms
from orchestrator.lab.termux.scenario import write_defaults
from orchestrator.lab.termux.shims import compiled

# What toybox and toolbox give a bare Android, as far as this computer has it.
_TOOLS = ("cat", "date", "df", "echo", "grep", "id", "ip", "kill", "ls", "mount", "ping", "ps", "sleep", "uname")

_LOADER = "libOpenCL.so.1"
_DRIVERS = Path("/etc/OpenCL/vendors")


def write_system(system: Path, sys_class: Path, scenario: Path, host: HostPrograms) -> None:
    """Write the stand-ins for Android and a healthy phone's scenario.

    The phone must see `scenario` at the same place relative to `system` as here; inside `system` is simplest.
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
    """The driver for OpenCL: this computer's (PoCL), or one without devices where the phone cannot use that."""
    drivers = sorted(_DRIVERS.glob("*.icd")) if host.are_of_this_computer and _has_loader() else []
    flags = ("-DFORWARDED", "-Wl,--no-as-needed", f"-l:{_LOADER}") if drivers else ()
    library = vendor / "lib64" / "libOpenCL.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(compiled("opencl.c", host, ("-Wl,-soname,libOpenCL.so", *flags)))
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
