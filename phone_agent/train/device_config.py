"""How this phone computes in a run: as the run says, or as measured on a phone of its kind, if it can."""

from __future__ import annotations

from dataclasses import replace

from phone_agent.contract.choices import AUTO, GPU_BACKENDS
from phone_agent.contract.schema import DeviceConfig, RunSpec

CPU = "cpu"


def config_for(spec: RunSpec, phone: str) -> DeviceConfig:
    own = spec.compute.devices.get(phone, DeviceConfig())
    requested = CPU if spec.compute.backend == AUTO else spec.compute.backend
    return replace(own, backend=own.backend or requested, threads=own.threads or spec.compute.threads)


def mappable_buffers(backend: str) -> frozenset[str]:
    """State buffers that can live in the checkpoint server's memory. OpenCL keeps values in memory of its own."""
    return frozenset({"momenta"}) if backend == "opencl" else frozenset({"values", "momenta"})


def fall_back_to_cpu(spec: RunSpec, phone: str) -> RunSpec:
    """Replaces a GPU backend by the CPU if the GPU cannot be used. May restart this process, so call it first."""
    if config_for(spec, phone).backend not in GPU_BACKENDS:
        return spec
    from phone_agent.backends.opencl import driver_path

    reason = driver_path.prepare_driver()
    if not reason:
        return spec
    devices = {**spec.compute.devices, phone: DeviceConfig(CPU, fallback_reason=reason)}
    return replace(spec, compute=replace(spec.compute, devices=devices))
