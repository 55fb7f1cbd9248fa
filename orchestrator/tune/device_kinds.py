"""Kinds of phones: what is measured on one phone of a kind holds for all of it, as long as driver and core stay."""

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

_ASK_S = 150.0  # the phone gives a driver half a minute, twice, before it calls it hung
NO_GPU = "no OpenCL device"
KINDS = ("gpu", "accelerator", "cpu")


@dataclass(frozen=True)
class Kind:
    name: str  # a model of phone with its processor
    core: str  # of the compute core's bytes
    driver: str  # the OpenCL device and its driver, in words
    why_no_gpu: str = ""
    limits: Limits | None = None  # of the device

    @property
    def has_gpu(self) -> bool:
        return self.driver != NO_GPU

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.name, "core": self.core, "driver": self.driver}


def ask_kinds(fleet: Fleet, phones: Sequence[Phone]) -> dict[Phone, Kind]:
    """Raises the first phone's error: without all answers there is no plan."""
    outcomes = fleet.map(_ask, phones)
    for failed in outcomes.failures:
        raise PhoneError(
            f"{failed.phone} does not tell what kind it is: {failed.error}",
            code=failed.code or ErrorCode.UNKNOWN,
            remedy=failed.remedy or f"clusterctl provision --limit {failed.phone.name}",
        )
    return {outcome.phone: outcome.value for outcome in outcomes if outcome.value is not None}


def by_kind(kinds: Mapping[Phone, Kind]) -> dict[Kind, list[Phone]]:
    found: dict[Kind, list[Phone]] = {}
    for phone, kind in kinds.items():
        found.setdefault(kind, []).append(phone)
    return found


def without_gpu(kinds: Mapping[Phone, Kind]) -> list[Phone]:
    return [phone for phone, kind in kinds.items() if not kind.has_gpu]


def _ask(connection: PhoneConnection) -> Kind:
    return parse_kind(agent.call(connection, "device-kind", timeout=_ASK_S))


def parse_kind(told: Any) -> Kind:
    """From a phone's answer, which may be anything."""
    try:
        cores = f"{int(told['cores'])} cores, {int(told['big_cores'])} big"
        name = ", ".join(_texts(told, ("model", "arch"))) + f", {cores}, {_text(told['isa'])}"
        device, why = told["opencl"]["device"], one_line(str(told["opencl"]["why"]), 400)
        driver = ", ".join(_texts(device, ("device", "driver", "version"))) if device else NO_GPU
        return Kind(name, _text(told["core"]), driver, "" if device else why, _limits(device) if device else None)
    except (KeyError, TypeError, ValueError):
        raise PhoneError(
            "it describes its kind in words unknown here", code=ErrorCode.BAD_ANSWER, remedy="clusterctl provision"
        ) from None


def _limits(device: Mapping[str, Any]) -> Limits:
    from phone_agent.api.memory import Limits

    if device["kind"] not in KINDS:
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


def _texts(told: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [_text(told[name]) for name in names]


def _text(value: Any) -> str:
    return one_line(str(value), 120)
