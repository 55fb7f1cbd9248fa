"""What was found, folded: phones with the same trouble together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.health import adb_commands as adb
from orchestrator.health.checks import ALL
from orchestrator.health.finding import Check, Finding, Fix, Kind, Severity
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone

_ORDER = {severity: position for position, severity in enumerate(Severity)}


@dataclass(frozen=True)
class Found:
    check: Check
    phone: Phone
    finding: Finding

    def as_json(self) -> dict[str, Any]:
        return {"phone": self.phone.name, "row": self.check.row, "check": self.check.name}


@dataclass(frozen=True)
class Trouble:
    """One check's finding on one or many phones."""

    check: Check
    found: tuple[Found, ...]

    @property
    def phones(self) -> tuple[Phone, ...]:
        return tuple(each.phone for each in self.found)

    @property
    def first(self) -> Finding:
        return self.found[0].finding

    @property
    def evidence(self) -> str:
        """The first phone's; where others say it with other figures, that is said."""
        others = len({each.finding.evidence for each in self.found}) - 1
        return self.first.evidence + (f" (and {others} alike)" if others else "")

    @property
    def command(self) -> str:
        return self.first.command.format(phones=fold(self.phones)) if self.first.command else ""

    @property
    def adb_lines(self) -> tuple[str, ...]:
        return tuple(adb.lines(self.phones, self.first.adb))

    def as_json(self) -> dict[str, Any]:
        return {
            "row": self.check.row,
            "check": self.check.name,
            "severity": self.first.severity.value,
            "phones": [
                {"phone": each.phone.name, "port": each.phone.where, "evidence": each.finding.evidence}
                for each in self.found
            ],
            "folded": fold(self.phones),
            "evidence": self.evidence,
            "remedy": self.first.remedy,
            "remedy_kind": self.first.kind.value,
            "fix": self.first.fix.value if self.first.fix else None,
            "command": self.command or None,
            "adb": list(self.adb_lines),
        }


@dataclass(frozen=True)
class Deed:
    """Something `--fix` did on a phone."""

    phone: Phone
    fix: Fix
    ok: bool
    said: str

    def as_json(self) -> dict[str, Any]:
        return {"phone": self.phone.name, "fix": self.fix.value, "ok": self.ok, "said": self.said}


@dataclass(frozen=True)
class Report:
    phones: tuple[Phone, ...]
    found: tuple[Found, ...]
    seconds: float
    deeds: tuple[Deed, ...] = ()
    cured: tuple[Found, ...] = ()  # by the deeds
    unasked: tuple[str, ...] = ()  # what could not be looked at, and why

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """The worst first, then in the order of the checks."""
        groups: dict[tuple[object, ...], list[Found]] = {}
        for each in self.found:
            finding = each.finding
            alike = (each.check.name, finding.severity, finding.remedy if not finding.adb else "", finding.adb)
            groups.setdefault(alike, []).append(each)
        troubles = [Trouble(group[0].check, tuple(group)) for group in groups.values()]
        return tuple(sorted(troubles, key=lambda each: (_ORDER[each.first.severity], ALL.index(each.check))))

    @property
    def healthy(self) -> bool:
        return not any(each.finding.severity is Severity.STOPS for each in self.found)

    @property
    def fixable(self) -> tuple[Phone, ...]:
        return _once(each.phone for each in self.found if each.finding.kind is Kind.SSH)

    def count(self, severity: Severity) -> int:
        return sum(trouble.first.severity is severity for trouble in self.troubles)

    def as_json(self, cluster: str) -> dict[str, Any]:
        return {
            "cluster": cluster,
            "healthy": self.healthy,
            "phones": [phone.name for phone in self.phones],
            "checks": len(ALL),
            "seconds": round(self.seconds, 1),
            "findings": [trouble.as_json() for trouble in self.troubles],
            "fixed": [
                {"phone": deed.phone.name, "fix": deed.fix.value, "ok": deed.ok, "said": deed.said}
                for deed in self.deeds
            ],
            "cured": [
                {"phone": each.phone.name, "row": each.check.row, "check": each.check.name} for each in self.cured
            ],
            "unasked": list(self.unasked),
        }


def _once(phones: Iterable[Phone]) -> tuple[Phone, ...]:
    return tuple(dict.fromkeys(phones))
