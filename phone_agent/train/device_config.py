"""How this phone computes in a run: as the run says, or as measured on a phone of its kind, if it can."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.choices import AUTO, GPU_BACKENDS
from phone_agent.contract.files import read_json, write_json
from phone_agent.contract.schema import DeviceConfig, RunSpec

CPU = "cpu"


def config_for(spec: RunSpec, phone: str) -> DeviceConfig:
    own = spec.compute.devices.get(phone, DeviceConfig())
    requested = CPU if spec.compute.backend == AUTO else spec.compute.backend
    return replace(own, backend=own.backend or requested, threads=own.threads or spec.compute.threads)


def mapped_buffers(device: DeviceConfig) -> frozenset[str]:
    """State buffers that live in the checkpoint server's memory. A phone that falls back to its CPU maps the same ones
    as before: the server discards a state with another layout."""
    return mappable_buffers(device.fallback_from or device.backend)


def mappable_buffers(backend: str) -> frozenset[str]:
    """State buffers that can live in the checkpoint server's memory. OpenCL keeps values in memory of its own."""
    return frozenset({"momenta"}) if backend == "opencl" else frozenset({"values", "momenta"})


def fall_back_to_cpu(spec: RunSpec, phone: str, run: Path) -> RunSpec:
    """Replaces a GPU backend by the CPU if the GPU cannot be used, or failed in an earlier attempt of this run.

    May restart this process, so call it first. `run`: the run's directory.
    """
    wanted = config_for(spec, phone).backend
    if wanted not in GPU_BACKENDS:
        return spec
    from phone_agent.backends.opencl import driver_path

    reason = gpu_failure(run) or driver_path.prepare_driver()
    if not reason:
        return spec
    devices = {**spec.compute.devices, phone: DeviceConfig(CPU, fallback_reason=reason, fallback_from=wanted)}
    return replace(spec, compute=replace(spec.compute, devices=devices))


def record_gpu_failure(run: Path, reason: str) -> None:
    """So that the next attempt of this run computes on the CPU of this phone."""
    with suppress(OSError):  # without the record, the next attempt tries the GPU once more
        write_json(run / layout.GPU_FAILURE_FILE, {"reason": reason})


def gpu_failure(run: Path) -> str:
    """Why the GPU of this phone failed in an earlier attempt, or an empty string."""
    recorded = read_json(run / layout.GPU_FAILURE_FILE)
    return str(recorded.get("reason", "")) if isinstance(recorded, dict) else ""
