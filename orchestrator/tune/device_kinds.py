"""Device kinds: a measurement on one phone applies to all phones of its kind until the driver or the core changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PhoneError
from orchestrator.fleet import agent
from orchestrator.inventory.model import Phone
from orchestrator.text import one_line
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection
    from phone_agent.api.memory import Limits

_TIMEOUT_S = 150.0  # the phone waits for a hung driver twice, 30 s each
NO_GPU = "no OpenCL device"
OPENCL_DEVICE_TYPES = ("gpu", "accelerator", "cpu")


@dataclass(frozen=True)
class DeviceKind:
    name: str  # phone model and processor
    core: str  # hash of the compute core
    driver: str  # the OpenCL device and its driver
    why_no_gpu: str = ""
    limits: Limits | None = None  # of the OpenCL device

    @property
    def has_gpu(self) -> bool:
        return self.driver != NO_GPU

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.name, "core": self.core, "driver": self.driver}


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
    return parse_kind(agent.call(connection, "device-kind", timeout=_TIMEOUT_S))


def parse_kind(answer: Any) -> DeviceKind:
    """Validates the answer, which is untrusted."""
    try:
        cores = f"{int(answer['cores'])} cores, {int(answer['big_cores'])} big"
        name = ", ".join(_texts(answer, ("model", "arch"))) + f", {cores}, {_text(answer['isa'])}"
        device, why = answer["opencl"]["device"], one_line(str(answer["opencl"]["why"]), 400)
        driver = ", ".join(_texts(device, ("device", "driver", "version"))) if device else NO_GPU
        return DeviceKind(
            name, _text(answer["core"]), driver, "" if device else why, _limits(device) if device else None
        )
    except (KeyError, TypeError, ValueError):
        raise PhoneError("invalid device kind", code=ErrorCode.BAD_ANSWER, remedy="clusterctl provision") from None


def _limits(device: Mapping[str, Any]) -> Limits:
    from phone_agent.api.memory import Limits

    if device["kind"] not in OPENCL_DEVICE_TYPES:
        raise ValueError
    return Limits(
        kind=device["kind"],
        compute_units=int(device["compute_units"]),
        work_group=int(device["work_group"]),
        local_bytes=int(device["local_bytes"]),
        allocation_bytes=int(device["allocation_bytes"]),
        memory_bytes=int(device["memory_bytes"]),
        unified=bool(device["unified"]),
    )


def _texts(answer: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [_text(answer[name]) for name in names]


def _text(value: Any) -> str:
    return one_line(str(value), 120)
