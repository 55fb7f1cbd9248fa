"""Device kinds: a measurement on one phone applies to all phones of its kind until the driver or our kernels change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PhoneError
from orchestrator.fleet import agent
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import DeviceKindReply, OpenClDevice

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection
    from phone_agent.api.memory import Limits

_TIMEOUT_S = 150.0  # the phone waits for a hung driver twice, 30 s each
NO_GPU = "no OpenCL device"


@dataclass(frozen=True)
class DeviceKind:
    name: str  # phone model and processor
    core: str  # hash of the compute core
    opencl_kernels: str  # hash of the OpenCL kernels and of how they are launched
    driver: str  # the OpenCL device and its driver
    why_no_gpu: str = ""
    limits: Limits | None = None  # of the OpenCL device

    @property
    def has_gpu(self) -> bool:
        return self.driver != NO_GPU

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.name, "core": self.core, "opencl_kernels": self.opencl_kernels, "driver": self.driver}


def query_device_kinds(fleet: Fleet, phones: Sequence[Phone]) -> dict[Phone, DeviceKind]:
    """Raises the error of the first phone that fails: a plan needs all kinds."""
    outcomes = fleet.map(_query, phones)
    for failed in outcomes.failures:
        raise PhoneError(
            f"cannot read the device kind of {failed.phone}: {failed.error}",
            code=failed.code or ErrorCode.UNKNOWN,
            remedy=failed.remedy or f"clusterctl provision --limit {failed.phone.name}",
        )
    return {outcome.phone: outcome.value for outcome in outcomes if outcome.value is not None}


def by_kind(kinds: Mapping[Phone, DeviceKind]) -> dict[DeviceKind, list[Phone]]:
    groups: dict[DeviceKind, list[Phone]] = {}
    for phone, kind in kinds.items():
        groups.setdefault(kind, []).append(phone)
    return groups


def without_gpu(kinds: Mapping[Phone, DeviceKind]) -> list[Phone]:
    return [phone for phone, kind in kinds.items() if not kind.has_gpu]


def _query(connection: PhoneConnection) -> DeviceKind:
    return read_kind(agent.call(connection, DeviceKindReply, "device-kind", timeout=_TIMEOUT_S))


def read_kind(reply: DeviceKindReply) -> DeviceKind:
    cores = f"{reply.cores} cores, {reply.big_cores} big"
    name, device = f"{reply.model}, {reply.arch}, {cores}, {reply.isa}", reply.opencl.device
    if device is None:
        return DeviceKind(name, reply.core, reply.opencl_kernels, NO_GPU, reply.opencl.why)
    driver = f"{device.device}, {device.driver}, {device.version}"
    return DeviceKind(name, reply.core, reply.opencl_kernels, driver, limits=_limits(device))


def _limits(device: OpenClDevice) -> Limits:
    from phone_agent.api.memory import Limits

    return Limits(**{each.name: getattr(device, each.name) for each in fields(Limits)})
