"""The report of `doctor`: findings, with phones that have the same problem folded together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.health.adb_commands import command_lines
from orchestrator.health.checks import ALL_CHECKS
from orchestrator.health.finding import Check, Finding, Fix, RemedyKind, Severity
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone

_ORDER = {severity: position for position, severity in enumerate(Severity)}


@dataclass(frozen=True)
class PhoneFinding:
    check: Check
    phone: Phone
    finding: Finding

    def as_json(self) -> dict[str, Any]:
        return {"phone": self.phone.name, "row": self.check.row, "check": self.check.name}


@dataclass(frozen=True)
class Problem:
    """The finding of one check on one or more phones."""

    check: Check
    findings: tuple[PhoneFinding, ...]

    @property
    def phones(self) -> tuple[Phone, ...]:
        return tuple(each.phone for each in self.findings)

    @property
    def first(self) -> Finding:
        return self.findings[0].finding

    @property
    def evidence(self) -> str:
        """The evidence of the first phone, and how many others have different evidence."""
        others = len({each.finding.evidence for each in self.findings}) - 1
        return self.first.evidence + (f" (and {others} similar)" if others else "")

    @property
    def command(self) -> str:
        return self.first.command.format(phones=fold(self.phones)) if self.first.command else ""

    @property
    def adb_lines(self) -> tuple[str, ...]:
        return tuple(command_lines(self.phones, self.first.adb))

    def as_json(self) -> dict[str, Any]:
        return {
            "row": self.check.row,
            "check": self.check.name,
            "severity": self.first.severity.value,
            "phones": [
                {"phone": each.phone.name, "port": each.phone.where, "evidence": each.finding.evidence}
                for each in self.findings
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
class AppliedFix:
    phone: Phone
    fix: Fix
    ok: bool
    message: str

    def as_json(self) -> dict[str, Any]:
        return {"phone": self.phone.name, "fix": self.fix.value, "ok": self.ok, "message": self.message}


@dataclass(frozen=True)
class DoctorReport:
    phones: tuple[Phone, ...]
    findings: tuple[PhoneFinding, ...]
    seconds: float
    fixes: tuple[AppliedFix, ...] = ()
    resolved: tuple[PhoneFinding, ...] = ()  # findings that are gone after the fixes
    not_checked: tuple[str, ...] = ()  # what could not be checked, and why

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The worst first, then in the order of the checks."""
        groups: dict[tuple[object, ...], list[PhoneFinding]] = {}
        for each in self.findings:
            finding = each.finding
            key = (each.check.name, finding.severity, finding.remedy if not finding.adb else "", finding.adb)
            groups.setdefault(key, []).append(each)
        problems = [Problem(group[0].check, tuple(group)) for group in groups.values()]
        return tuple(sorted(problems, key=lambda each: (_ORDER[each.first.severity], ALL_CHECKS.index(each.check))))

    @property
    def healthy(self) -> bool:
        return not any(each.finding.severity is Severity.STOPS for each in self.findings)

    @property
    def fixable(self) -> tuple[Phone, ...]:
        return _unique(each.phone for each in self.findings if each.finding.kind is RemedyKind.SSH)

    def count(self, severity: Severity) -> int:
        return sum(problem.first.severity is severity for problem in self.problems)

    def as_json(self, cluster: str) -> dict[str, Any]:
        return {
            "cluster": cluster,
            "healthy": self.healthy,
            "phones": [phone.name for phone in self.phones],
            "checks": len(ALL_CHECKS),
            "seconds": round(self.seconds, 1),
            "findings": [problem.as_json() for problem in self.problems],
            "fixes": [fix.as_json() for fix in self.fixes],
            "resolved": [each.as_json() for each in self.resolved],
            "not_checked": list(self.not_checked),
        }


def _unique(phones: Iterable[Phone]) -> tuple[Phone, ...]:
    return tuple(dict.fromkeys(phones))
