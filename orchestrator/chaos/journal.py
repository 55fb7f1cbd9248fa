"""A journal of completed runs, from which an interrupted campaign continues.

The first line holds the parameters of the plan, every other line one run. A run whose line is torn is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.chaos.catalog import BY_NAME
from orchestrator.chaos.evaluate import CheckResult, Invariant, Violation
from orchestrator.chaos.outcome import InjectedFault, InjectionOutcome, RunOutcome
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.run_log import Incident
from orchestrator.errors import UsageError
from orchestrator.records.causes import parse_cause

Entry = tuple[RunOutcome, CheckResult]


@dataclass(frozen=True)
class Journal:
    path: Path
    parameters: Mapping[str, Any]  # that decide the plan: only runs of the same plan count

    def open(self) -> list[Entry]:
        """The runs in the journal. Starts a new one if there is none."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        head, *lines = text[: text.rfind("\n") + 1].splitlines() or [""]
        if not head:
            self.path.write_text(json.dumps(self.parameters) + "\n", encoding="utf-8")
            return []
        try:
            self._check_parameters(json.loads(head))
            entries = [_parse_run(json.loads(line)) for line in lines]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{self.path} is not a chaos journal", remedy="choose another --journal file") from None
        self.path.write_text("".join(f"{line}\n" for line in (head, *lines)), encoding="utf-8")
        return entries

    def add(self, outcome: RunOutcome, result: CheckResult) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_run_document(outcome, result)) + "\n")

    def _check_parameters(self, parameters: Mapping[str, Any]) -> None:
        changed = [name for name, value in self.parameters.items() if parameters.get(name) != value]
        if changed:
            flags = ", ".join(f"--{name}" for name in changed)
            remedy = "use the same values, or another --journal"
            raise UsageError(f"{self.path} was started with different values for {flags}", remedy=remedy)


def _run_document(outcome: RunOutcome, result: CheckResult) -> dict[str, Any]:
    return {
        "number": outcome.plan.number,
        "phone_count": outcome.plan.phones,
        "run_id": outcome.run_id,
        "state": outcome.state,
        "error": outcome.error,
        "phones": outcome.phones,
        "injections": [_injection_document(injection) for injection in outcome.injections],
        "violations": [[violation.invariant, violation.message] for violation in result.violations],
        "bitwise": result.bitwise,
        "difference": result.difference,
    }


def _injection_document(outcome: InjectionOutcome) -> dict[str, Any]:
    return {
        "kind": outcome.kind,
        "faults": [[injected.fault.name, injected.phone] for injected in outcome.faults],
        "at": outcome.at,
        "step": outcome.step,
        "incidents": [asdict(incident) for incident in outcome.incidents],
        "seconds": outcome.seconds,
        "detected_s": outcome.detected_s,
        "phases": dict(outcome.phases),
        "restarted": outcome.restarted,
        "hung": outcome.hung,
        "durable_step": outcome.durable_step,
    }


def _parse_run(raw: dict[str, Any]) -> Entry:
    """Without steps and weights: they were evaluated before the run was written."""
    outcome = RunOutcome(
        RunPlan(raw["number"], raw["phone_count"], ()),
        raw["run_id"],
        raw["state"],
        raw["error"],
        tuple(map(_parse_injection, raw["injections"])),
        tuple(map(tuple, raw["phones"])),
        (),
        None,
    )
    violations = tuple(Violation(Invariant(invariant), message) for invariant, message in raw["violations"])
    return outcome, CheckResult(violations, raw["bitwise"], raw["difference"])


def _parse_injection(raw: dict[str, Any]) -> InjectionOutcome:
    faults = tuple(InjectedFault(BY_NAME[name], phone) for name, phone in raw["faults"])
    return InjectionOutcome(**{**raw, "faults": faults, "incidents": tuple(map(_parse_incident, raw["incidents"]))})


def _parse_incident(raw: dict[str, Any]) -> Incident:
    return Incident(**{**raw, "cause": parse_cause(raw["cause"]), "phones": tuple(raw["phones"])})
