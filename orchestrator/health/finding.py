"""A check of `doctor`, and what it finds on a phone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from orchestrator.health.observation import Observation
from orchestrator.text import one_line

_MAX_EVIDENCE: Final = 300


class Severity(StrEnum):
    STOPS = "stops"  # a run does not start, or fails
    SLOWS = "slows"  # all phones wait for the slowest
    NOTE = "note"  # a run is not affected


class RemedyKind(StrEnum):
    """How the remedy is applied."""

    SSH = "ssh"  # by `doctor --fix`
    ADB = "adb"  # over USB; the commands are printed
    MANUAL = "manual"


class Fix(StrEnum):
    """The fixes of `doctor --fix`, in the order in which they are applied."""

    FINISH_PACKAGES = "finish-packages"
    RESTART_SSHD = "restart-sshd"
    CLEAN = "clean"
    WAKE_LOCK = "wake-lock"
    PROVISION = "provision"


@dataclass(frozen=True)
class Finding:
    severity: Severity
    evidence: str  # what the phone reported or did
    remedy: str
    fix: Fix | None = None
    adb: tuple[str, ...] = ()  # arguments after `adb -s SERIAL`
    command: str = ""  # a clusterctl command, with {phones} as a placeholder

    @property
    def kind(self) -> RemedyKind:
        if self.fix:
            return RemedyKind.SSH
        return RemedyKind.ADB if self.adb else RemedyKind.MANUAL


@dataclass(frozen=True)
class Check:
    name: str
    row: int | None  # in the table of docs/guide/troubleshooting.md; None: listed below the table
    description: str
    evaluate: Callable[[Observation], Finding | None]  # a pure function
    in_preflight: bool = False  # needs only session facts, so `launch` runs it too

    @property
    def label(self) -> str:
        return str(self.row) if self.row else self.name


def _finding(severity: Severity) -> Callable[..., Finding]:
    def make(evidence: str, remedy: str, **more: Any) -> Finding:
        return Finding(severity, one_line(evidence, _MAX_EVIDENCE), remedy, **more)

    return make


stops: Final = _finding(Severity.STOPS)
slows: Final = _finding(Severity.SLOWS)
note: Final = _finding(Severity.NOTE)
