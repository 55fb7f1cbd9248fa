"""How this phone computes in a run: as the run says, or as was measured on a phone of its kind; if it can."""

from __future__ import annotations

from dataclasses import replace

from phone_agent.contract.choices import AUTO, GPU_BACKENDS
from phone_agent.contract.schema import DeviceConfig, RunSpec

CPU = "cpu"


def config_for(spec: RunSpec, phone: str) -> DeviceConfig:
    own = spec.compute.devices.get(phone, DeviceConfig())
    asked = CPU if spec.compute.backend == AUTO else spec.compute.backend
    return replace(own, backend=own.backend or asked, threads=own.threads or spec.compute.threads)


def living(backend: str) -> frozenset[str]:
    """What of a training state may live in memory that somebody else gives: OpenCL computes with values in its own."""
    return frozenset({"momenta"}) if backend == "opencl" else frozenset({"values", "momenta"})


def settled(spec: RunSpec, phone: str) -> RunSpec:
    """With the processor in the GPU's place where that cannot be reached. May start this process anew, so it comes
    before anything else."""
    config = config_for(spec, phone)
    if config.backend not in GPU_BACKENDS:
        return spec
    from phone_agent.backends.opencl import driver_path

    why = driver_path.prepare_driver()
    if not why:
        return spec
    devices = {**spec.compute.devices, phone: DeviceConfig(CPU, fallback_reason=why)}
    return replace(spec, compute=replace(spec.compute, devices=devices))
