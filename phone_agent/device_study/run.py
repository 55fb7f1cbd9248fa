"""The study of this device, one row at a time."""

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
from phone_agent.device_study import cases, foreground, loads
from phone_agent.device_study.cases import DEFAULT, QUICK, StudyContext

PARTS: dict[str, Callable[[StudyRequest, StudyContext], Iterator[Row]]] = {
    "models": cases.model_cases,
    "sweep": cases.sweep_cases,
    "operations": cases.operations,
    "power": loads.loads,
    "foreground": foreground.measure_interference,
}
DRIVER_S = 60.0
_PROCESSOR = re.compile(r"^(?:model name|Hardware|Processor)\s*:\s*(.+)$", re.MULTILINE)


def study(request: StudyRequest, threads: int) -> Iterator[Row]:
    """`threads`: compute threads, already pinned."""
    request.check()
    context = _context(request, threads)
    yield describe(request, context)
    for name in request.parts:
        yield from PARTS[name](request, context)
    yield from loads.thermal_samples(request, context)


def _context(request: StudyRequest, threads: int) -> StudyContext:
    _kernels()  # builds the core on first use, before anything is timed
    free = memory.available_mb()
    budget = request.memory_bytes or (free * 1_000_000 if free else None)
    unavailable = {name: why for name in request.backends if (why := cases.unavailable(name, threads))}
    return StudyContext(threads, budget, unavailable, QUICK if request.quick else DEFAULT)


def describe(request: StudyRequest, context: StudyContext) -> Facts:
    total = memory.total_mb()
    why = str(context.unavailable.get("opencl") or ("" if "opencl" in request.backends else "not requested"))
    return Facts(
        model=facts.getprop("ro.product.model"),
        processor=processor(),
        system=_system(),
        architecture=platform.machine(),
        cores=len(cpu.present()),
        threads=context.threads,
        kernels=_kernels(),
        frequency_max_mhz=cpu.frequency_mhz()[1],
        memory_bytes=total * 1_000_000 if total else None,
        budget_bytes=context.budget_bytes,
        opencl=None if why else _opencl(),
        why_no_opencl=why,
    )


def _kernels() -> str | None:
    try:
        return library.isas(library.library())[0]
    except AgentError:
        return None


def _opencl() -> str | None:
    """In a separate process: an OpenCL context would not survive the later forks."""
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
