"""Chooses the device config of each phone: from flags, else from tuning results for its kind, else the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.tune.device_kinds import DeviceKind, by_kind, without_gpu
from orchestrator.tune.store import Tuned
from phone_agent.contract.choices import AUTO, GPU_BACKENDS
from phone_agent.contract.schema import ComputeSpec, DeviceConfig

if TYPE_CHECKING:
    from phone_agent.api.memory import Limits


@dataclass(frozen=True)
class DeviceChoices:
    devices: Mapping[str, DeviceConfig] = field(default_factory=dict)  # by phone
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    gpus: Mapping[str, Limits] = field(default_factory=dict)  # by phone; only phones with a GPU


class NoGpuError(ClusterctlError):
    """A GPU backend was requested, but some phones have no GPU. Nothing was started."""


def needs_device_kinds(compute: ComputeSpec, known: Mapping[str, Tuned]) -> bool:
    """Whether the choice depends on the device kinds."""
    return compute.backend in GPU_BACKENDS or (compute.backend == AUTO and bool(known))


def choose_devices(
    compute: ComputeSpec, kinds: Mapping[Phone, DeviceKind], known: Mapping[str, Tuned]
) -> DeviceChoices:
    if compute.backend in GPU_BACKENDS:
        _require_gpus(compute.backend, kinds)
    devices: dict[str, DeviceConfig] = {}
    notes: list[str] = []
    warnings: list[str] = []
    for kind, phones in by_kind(kinds).items():
        tuned = known.get(kind.name)
        if tuned is None:
            continue
        if why := tuned.stale_reason(kind):
            warnings.append(f"{fold(phones)}: ignoring the tuning results of {tuned.day}: {why}")
            continue
        config = _with_flags(tuned.device_config, compute)
        devices |= {phone.name: config for phone in phones}
        notes.append(
            f"{fold(phones)}: using settings tuned on {tuned.day} with {tuned.model}: {describe_config(config)}"
        )
    gpus = {phone.name: kind.limits for phone, kind in kinds.items() if kind.limits}
    return DeviceChoices(devices, tuple(notes), tuple(warnings), gpus)


def describe_config(config: DeviceConfig) -> str:
    parts = [config.backend or "the backend of the run"]
    parts += [f"{config.threads} thread{'' if config.threads == 1 else 's'}"] if config.threads else []
    parts += ["including little cores"] if config.little_cores else []
    parts += [f"{100 * config.gpu_fraction:.0f}% of the images on the GPU"] if config.gpu_fraction is not None else []
    parts += (
        [f"tiles {', '.join(f'{name} {value}' for name, value in sorted(config.tiles.items()))}"]
        if config.tiles
        else []
    )
    return ", ".join(parts)


def _with_flags(config: DeviceConfig, compute: ComputeSpec) -> DeviceConfig:
    """Flags override tuning results; if they set another backend, only the tiles still apply."""
    if compute.backend not in {AUTO, config.backend}:
        config = DeviceConfig(compute.backend, tiles=config.tiles)
    return replace(config, threads=compute.threads, little_cores=False) if compute.threads else config


def _require_gpus(backend: str, kinds: Mapping[Phone, DeviceKind]) -> None:
    missing = without_gpu(kinds)
    if not missing:
        return
    lines = [f"  {phone.name} ({phone.where}): {kinds[phone].why_no_gpu}" for phone in missing]
    others = [phone for phone in kinds if phone not in missing]
    remedy = "--backend auto or cpu" + (f", or --limit {fold(others)}" if others else "")
    raise NoGpuError(
        "\n".join([f"--backend {backend}: {len(missing)} of {len(kinds)} phones have no OpenCL device:", *lines]),
        remedy=remedy,
    )
