"""What a phone is: what changes when it is provisioned, not from minute to minute."""

from __future__ import annotations

import platform
import re
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from phone_agent.contract.errors import AgentError
from phone_agent.contract.files import read_json
from phone_agent.contract.layout import MANIFEST
from phone_agent.device import commands, cpu, interfaces, memory
from phone_agent.device.roots import REAL, Roots

RELEASE = Path(__file__).resolve().parents[2]  # the directory phone_agent was unpacked in


def collect(roots: Roots = REAL) -> dict[str, Any]:
    return {
        "agent": agent(),
        "python": platform.python_version(),
        "numpy": _package_version("numpy"),
        "mpi4py": _package_version("mpi4py"),
        "openmpi": openmpi_version(),
        "arch": platform.machine(),
        "core": core(),
        "android": getprop("ro.build.version.release", roots),
        "model": getprop("ro.product.model", roots),
        "cpus": len(cpu.present(roots)),
        "cpus_allowed": cpu.allowed(roots),
        "big_cores": cpu.big_cores(roots),
        "memory_mb": memory.total_mb(roots),
        "free_memory_mb": memory.available_mb(roots),
        "free_disk_mb": memory.free_disk_mb(Path.home()),
        "epoch": time.time(),
        "interfaces": interfaces.addresses(),
    }


def agent(release: Path = RELEASE) -> dict[str, Any]:
    """The version the host wrote in the manifest; None when run from a source tree."""
    manifest = read_json(release / MANIFEST)
    version = manifest.get("version") if isinstance(manifest, dict) else None
    return {"version": version, "release": release.name}


def core() -> str | None:
    """The instruction set the compute core uses here. None: it is missing, or not for this processor."""
    from phone_agent.core import library

    try:
        return library.isas(library.load(library.SHIPPED))[0]
    except AgentError:
        return None


def getprop(name: str, roots: Roots = REAL) -> str | None:
    text = commands.output([commands.find("getprop", roots.android), name], timeout=2)
    return (text or "").strip() or None


def openmpi_version() -> str | None:
    match = re.search(r"Open MPI\) (\S+)", commands.output(["mpirun", "--version"], timeout=5) or "")
    return match[1] if match else None


def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
