"""Device kind: phones of one kind are tuned once. Also identifies the core and driver that a measurement depends on."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import asdict
from typing import Any

from phone_agent.backends.opencl import driver_path
from phone_agent.backends.opencl.program import kernels_id
from phone_agent.core import library
from phone_agent.device import cpu, facts


def collect() -> dict[str, Any]:
    gpu = driver_path.probe_device()
    return {
        "model": facts.getprop("ro.product.model") or "unknown",
        "arch": platform.machine(),
        "cores": len(cpu.present()),
        "big_cores": len(cpu.big_cores()),
        "isa": facts.core(),
        "core": _core_id(),
        "opencl_kernels": kernels_id(),
        "opencl": asdict(gpu),
    }


def _core_id() -> str:
    """Hash of the shared library."""
    path = library.SHIPPED if library.SHIPPED.is_file() else library.built_here()
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
