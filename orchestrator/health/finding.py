"""A check, and what it finds on a phone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from orchestrator.health.observation import Seen
from orchestrator.text import one_line

_EVIDENCE: Final = 300


class Severity(StrEnum):
    STOPS = "stops"  # no run, or none that ends
    SLOWS = "slows"  # all phones wait for the slowest
    NOTE = "note"  # good to know; a run goes well with it


class Kind(StrEnum):
    """Where the remedy is applied."""

    SSH = "ssh"  # by `doctor --fix`
    ADB = "adb"  # by a USB cable; the lines are printed
    HANDS = "hands"


class Fix(StrEnum):
    """What `doctor --fix` can do, in the order in which it does it."""

    FINISH_PACKAGES = "finish-packages"
    RESTART_SSHD = "restart-sshd"
    CLEAN = "clean"
    WAKE_LOCK = "wake-lock"
    PROVISION = "provision"


@dataclass(frozen=True)
class Finding:
    severity: Severity
    evidence: str  # what the phone said or did
    remedy: str
    fix: Fix | None = None
    adb: tuple[str, ...] = ()  # what follows `adb -s SERIAL`
    command: str = ""  # of clusterctl, with {phones} for whom

    @property
    def kind(self) -> Kind:
        if self.fix:
            return Kind.SSH
        return Kind.ADB if self.adb else Kind.HANDS


Judge = Callable[[Seen], Finding | None]


@dataclass(frozen=True)
class Check:
    """`judge` is pure: what was seen of a phone in, a finding or None out."""

    name: str
    row: int | None  # of the table in docs/guide/troubleshooting.md; None for what stands below it
    looks_for: str
    judge: Judge
    before_runs: bool = False  # needs no more than a session tells: `launch` asks it too

    @property
    def label(self) -> str:
        return str(self.row) if self.row else self.name


def _finding(severity: Severity) -> Callable[..., Finding]:
    def make(evidence: str, remedy: str, **more: Any) -> Finding:
        return Finding(severity, one_line(evidence, _EVIDENCE), remedy, **more)

    return make


stops: Final = _finding(Severity.STOPS)
slows: Final = _finding(Severity.SLOWS)
note: Final = _finding(Severity.NOTE)
