"""The whole study of this device, a row at a time."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from phone_agent.contract.device_study import Facts, Row, StudyRequest
from phone_agent.contract.errors import AgentError
from phone_agent.contract.files import read_text
from phone_agent.core import library
from phone_agent.device import cpu, facts, memory
from phone_agent.device.isolated import IsolatedError, run_isolated
from phone_agent.device.process import PROC
from phone_agent.device_study import cases, foreground, loads, operations, thermal
from phone_agent.device_study.cases import Means
from phone_agent.device_study.time_limits import QUICK, USUAL

PARTS: dict[str, Callable[[StudyRequest, Means], Iterator[Row]]] = {
    "models": cases.model_cases,
    "sweep": cases.sweep_cases,
    "operations": operations.operations,
    "power": loads.loads,
    "foreground": foreground.contests,
}
DRIVER_S = 60.0
_PROCESSOR = re.compile(r"^(?:model name|Hardware|Processor)\s*:\s*(.+)$", re.MULTILINE)


def study(request: StudyRequest, threads: int) -> Iterator[Row]:
    """`threads`: those that compute, on cores chosen already."""
    request.check()
    means = _means(request, threads)
    yield describe(request, means)
    for name in request.parts:
        yield from PARTS[name](request, means)
    yield from thermal.samples(request, means)


def _means(request: StudyRequest, threads: int) -> Means:
    _kernels()  # builds the core where it is used for the first time, before anything is timed
    free = memory.available_mb()
    budget = request.memory_bytes or (free * 1_000_000 if free else None)
    missing = {name: why for name in request.backends if (why := cases.missing(name, threads))}
    return Means(threads, budget, missing, QUICK if request.quick else USUAL)


def describe(request: StudyRequest, means: Means) -> Facts:
    total = memory.total_mb()
    why = str(means.missing.get("opencl") or ("" if "opencl" in request.backends else "not asked for"))
    return Facts(
        model=facts.getprop("ro.product.model"),
        processor=processor(),
        system=_system(),
        architecture=platform.machine(),
        cores=len(cpu.present()),
        threads=means.threads,
        kernels=_kernels(),
        frequency_max_mhz=cpu.frequency_mhz()[1],
        memory_bytes=total * 1_000_000 if total else None,
        budget_bytes=means.budget_bytes,
        opencl=None if why else _opencl(),
        why_no_opencl=why,
    )


def _kernels() -> str | None:
    try:
        return library.isas(library.library())[0]
    except AgentError:
        return None


def _opencl() -> str | None:
    """In a process of its own: a context here would not survive the forks to come."""
    try:
        name: str = run_isolated(_name_device, DRIVER_S)
    except IsolatedError:
        return None
    return name


def _name_device() -> str:
    from phone_agent.backends.opencl.device import find_device

    found = find_device()
    return f"{found.identity.device}, {found.identity.platform} ({found.limits.kind})"


def processor(proc: Path = PROC) -> str | None:
    found = _PROCESSOR.search(read_text(proc / "cpuinfo") or "")
    return found[1].strip() if found else None


def _system() -> str:
    android = facts.getprop("ro.build.version.release")
    return f"Android {android}" if android else f"{platform.system()} {platform.release()}"
