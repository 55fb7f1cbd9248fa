"""A belief of ours about phones, and how one phone answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCENARIO = "it says what `clusterctl lab set` tells it to"  # Belief.lab


@dataclass(frozen=True)
class WiredNetwork:
    """The wired address and interface of a phone, and the callback server that it can reach there."""

    address: str
    interface: str
    host: str
    port: int


class Status(StrEnum):
    OK = "ok"  # as we say
    FAILED = "failed"  # otherwise than we say, or it does not work
    UNKNOWN = "unknown"  # this phone does not tell


@dataclass(frozen=True)
class Found:
    status: Status
    told: str  # one line for a person
    evidence: dict[str, Any] = field(default_factory=dict)


Look = Callable[[], Found]


@dataclass(frozen=True)
class Belief:
    """Something we say of phones. `lab` is why a virtual phone cannot settle it, where what it shows is made up."""

    name: str
    settles: str
    needed: bool = False  # training does not work without it
    lab: str = ""


@dataclass(frozen=True)
class Check:
    belief: Belief
    look: Look
    limit_s: float = 15.0


def ok(told: str, **evidence: Any) -> Found:
    return Found(Status.OK, told, evidence)


def failed(told: str, **evidence: Any) -> Found:
    return Found(Status.FAILED, told, evidence)


def unknown(told: str, **evidence: Any) -> Found:
    return Found(Status.UNKNOWN, told, evidence)


def judged(as_we_say: bool, told: str, **evidence: Any) -> Found:  # noqa: FBT001 - the verdict itself
    return Found(Status.OK if as_we_say else Status.FAILED, told, evidence)
