"""How each phone of a run computes: as flags say, else as was measured for its kind, else on its processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.tune.device_kinds import Kind, by_kind, without_gpu
from orchestrator.tune.store import Tuned
from phone_agent.contract.choices import AUTO, GPU_BACKENDS
from phone_agent.contract.schema import ComputeSpec, DeviceConfig

if TYPE_CHECKING:
    from phone_agent.api.memory import Limits


@dataclass(frozen=True)
class Advice:
    devices: Mapping[str, DeviceConfig] = field(default_factory=dict)  # by phone
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    gpus: Mapping[str, Limits] = field(default_factory=dict)  # by phone, where it has one


class NoGpuError(ClusterctlError):
    """A GPU was asked for by name, and some phones have none. Nothing was started."""


def is_needed(compute: ComputeSpec, known: Mapping[str, Tuned]) -> bool:
    """Whether it takes to know what kinds the phones are."""
    return compute.backend in GPU_BACKENDS or (compute.backend == AUTO and bool(known))


def advise(compute: ComputeSpec, kinds: Mapping[Phone, Kind], known: Mapping[str, Tuned]) -> Advice:
    if compute.backend in GPU_BACKENDS:
        _require_gpus(compute.backend, kinds)
    devices: dict[str, DeviceConfig] = {}
    notes: list[str] = []
    warnings: list[str] = []
    for kind, phones in by_kind(kinds).items():
        tuned = known.get(kind.name)
        if tuned is None:
            continue
        if why := tuned.stale(kind):
            warnings.append(f"{fold(phones)}: what clusterctl tune found on {tuned.day} is not used, since {why}")
            continue
        way = _with_flags(tuned.device_config, compute)
        devices |= {phone.name: way for phone in phones}
        notes.append(f"{fold(phones)} as tuned on {tuned.day} with {tuned.model}: {in_words(way)}")
    gpus = {phone.name: kind.limits for phone, kind in kinds.items() if kind.limits}
    return Advice(devices, tuple(notes), tuple(warnings), gpus)


def in_words(way: DeviceConfig) -> str:
    words = [way.backend or "the run's backend"]
    words += [f"{way.threads} thread{'' if way.threads == 1 else 's'}"] if way.threads else []
    words += ["little cores as well"] if way.little_cores else []
    words += [f"{100 * way.gpu_fraction:.0f} % of the images on the GPU"] if way.gpu_fraction is not None else []
    words += [f"tiles {', '.join(f'{name} {value}' for name, value in sorted(way.tiles.items()))}"] if way.tiles else []
    return ", ".join(words)


def _with_flags(way: DeviceConfig, compute: ComputeSpec) -> DeviceConfig:
    """Flags go before what was measured; of another backend only the tiles still hold."""
    if compute.backend not in {AUTO, way.backend}:
        way = DeviceConfig(compute.backend, tiles=way.tiles)
    return replace(way, threads=compute.threads, little_cores=False) if compute.threads else way


def _require_gpus(backend: str, kinds: Mapping[Phone, Kind]) -> None:
    lacking = without_gpu(kinds)
    if not lacking:
        return
    lines = [f"  {phone.name} ({phone.where}): {kinds[phone].why_no_gpu}" for phone in lacking]
    others = [phone for phone in kinds if phone not in lacking]
    remedy = "--backend auto or cpu" + (f", or --limit {fold(others)}" if others else "")
    raise NoGpuError(
        "\n".join([f"--backend {backend}: {len(lacking)} of {len(kinds)} phones have no OpenCL device:", *lines]),
        remedy=remedy,
    )
