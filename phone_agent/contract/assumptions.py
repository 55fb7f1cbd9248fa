"""Assumptions about phones, and the result of checking one on a phone. Shared by both sides of `selftest`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

LAB_SETTING = "shows what `clusterctl lab set` configured"  # Assumption.lab_caveat


@dataclass(frozen=True)
class WiredNetwork:
    """The wired address and interface of a phone, and the callback server that it can reach there."""

    address: str
    interface: str
    host: str
    port: int


class Status(StrEnum):
    OK = "ok"  # the assumption holds
    FAILED = "failed"  # it does not hold, or the check itself failed
    UNKNOWN = "unknown"  # this phone gives no answer


@dataclass(frozen=True)
class CheckResult:
    status: Status
    detail: str  # one line to print
    evidence: dict[str, Any] = field(default_factory=dict)


CheckFunction = Callable[[], CheckResult]


@dataclass(frozen=True)
class Assumption:
    """A statement about phones. `lab_caveat`: why the result of a virtual phone proves nothing; empty if it does."""

    name: str
    statement: str
    required: bool = False  # training does not work without it
    lab_caveat: str = ""


@dataclass(frozen=True)
class Check:
    assumption: Assumption
    run: CheckFunction
    limit_s: float = 15.0


def ok(detail: str, **evidence: Any) -> CheckResult:
    return CheckResult(Status.OK, detail, evidence)


def failed(detail: str, **evidence: Any) -> CheckResult:
    return CheckResult(Status.FAILED, detail, evidence)


def unknown(detail: str, **evidence: Any) -> CheckResult:
    return CheckResult(Status.UNKNOWN, detail, evidence)


def ok_if(holds: bool, detail: str, **evidence: Any) -> CheckResult:  # noqa: FBT001 - the verdict itself
    return CheckResult(Status.OK if holds else Status.FAILED, detail, evidence)
