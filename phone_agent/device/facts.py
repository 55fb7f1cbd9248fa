"""Facts about a phone that change only when it is provisioned."""

from __future__ import annotations

import platform
import re
import time
from pathlib import Path
from typing import Any

from phone_agent.contract.errors import AgentError
from phone_agent.contract.files import read_json
from phone_agent.contract.layout import MANIFEST
from phone_agent.device import cpu, interfaces, memory, system
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths

RELEASE = Path(__file__).resolve().parents[2]  # where phone_agent was unpacked


def collect(paths: SystemPaths = DEFAULT_PATHS) -> dict[str, Any]:
    return {
        "agent": agent(),
        "python": platform.python_version(),
        "numpy": _package_version("numpy"),
        "mpi4py": _package_version("mpi4py"),
        "openmpi": openmpi_version(),
        "arch": platform.machine(),
        "core": core(),
        "android": getprop("ro.build.version.release", paths),
        "model": getprop("ro.product.model", paths),
        "cpus": len(cpu.present(paths)),
        "cpus_allowed": cpu.allowed(paths),
        "big_cores": cpu.big_cores(paths),
        "memory_mb": memory.total_mb(paths),
        "free_memory_mb": memory.available_mb(paths),
        "free_disk_mb": memory.free_disk_mb(Path.home()),
        "epoch": time.time(),
        "interfaces": interfaces.addresses(),
    }


def agent(release: Path = RELEASE) -> dict[str, Any]:
    """The version that the host wrote to the manifest; None in a source tree."""
    manifest = read_json(release / MANIFEST)
    version = manifest.get("version") if isinstance(manifest, dict) else None
    return {"version": version, "release": release.name}


def core() -> str | None:
    """The instruction set that the core uses. None: the core is missing, or does not support this processor."""
    from phone_agent.core import library

    try:
        return library.isas(library.load(library.SHIPPED))[0]
    except AgentError:
        return None


def getprop(name: str, paths: SystemPaths = DEFAULT_PATHS) -> str | None:
    text = system.output([system.find("getprop", paths.android), name], timeout=2)
    return (text or "").strip() or None


def openmpi_version() -> str | None:
    match = re.search(r"Open MPI\) (\S+)", system.output(["mpirun", "--version"], timeout=5) or "")
    return match[1] if match else None


def _package_version(name: str) -> str | None:
    from importlib import metadata  # slow to import, and telemetry does not need it

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
