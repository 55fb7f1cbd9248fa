"""The results of a chaos campaign."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.chaos.evaluate import (
    TOLERANCE,
    Attribution,
    CheckResult,
    Invariant,
    Violation,
    first_diagnosis,
    rate_attribution,
)
from orchestrator.chaos.outcome import InjectionOutcome, RunOutcome
from orchestrator.chaos.plan import KINDS

MIN_ATTRIBUTION_ACCURACY = 0.95


@dataclass(frozen=True)
class KindSummary:
    """All injections of one kind."""

    kind: str
    injections: int
    restarts: int
    correct: int  # attributions
    rated: int  # attributions that were needed, or made
    median_s: float | None
    worst_s: float | None
    worst_detected_s: float | None  # of those that restarted the run


@dataclass
class CampaignReport:
    seed: int
    unsupported: tuple[str, ...] = ()  # faults, by the kernel of this computer
    runs: list[tuple[RunOutcome, CheckResult]] = field(default_factory=list)
    failed_starts: list[str] = field(default_factory=list)  # runs that could not be started, and why
    out_of_time: bool = False
    interrupted: bool = False

    def add(self, outcome: RunOutcome, result: CheckResult) -> None:
        self.runs.append((outcome, result))

    @property
    def injections(self) -> list[InjectionOutcome]:
        return [injection for outcome, _ in self.runs for injection in outcome.injections]

    @property
    def violations(self) -> list[tuple[RunOutcome, Violation]]:
        return [(outcome, violation) for outcome, result in self.runs for violation in result.violations]

    def runs_violating(self, invariant: Invariant) -> int:
        return len({outcome.run_id for outcome, violation in self.violations if violation.invariant is invariant})

    @property
    def attributions(self) -> dict[Attribution, int]:
        rated = [rate_attribution(injection) for injection in self.injections]
        return {each: rated.count(each) for each in Attribution}

    @property
    def attribution_accuracy(self) -> float:
        counts = self.attributions
        rated = sum(counts.values()) - counts[Attribution.NOT_NEEDED]
        return counts[Attribution.CORRECT] / rated if rated else 1.0

    @property
    def passed(self) -> bool:
        accurate = self.attribution_accuracy >= MIN_ATTRIBUTION_ACCURACY
        return not self.violations and not self.failed_starts and accurate

    @property
    def by_kind(self) -> list[KindSummary]:
        found = {kind: [each for each in self.injections if each.kind == kind] for kind in KINDS}
        return [_summarize(kind, injections) for kind, injections in found.items() if injections]

    def worst_difference(self, *, bitwise: bool) -> float | None:
        found = [result.difference for _, result in self.runs if result.bitwise == bitwise]
        return max((each for each in found if each is not None), default=None)

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "passed": self.passed,
            "out_of_time": self.out_of_time,
            "interrupted": self.interrupted,
            "failed_starts": self.failed_starts,
            "faults": len(self.injections),
            "runs": [_run_json(outcome, result) for outcome, result in self.runs],
            "kinds": [asdict(summary) for summary in self.by_kind],
            "unsupported": self.unsupported,
            "violations": {invariant.value: self.runs_violating(invariant) for invariant in Invariant},
            "attributions": {each.value: count for each, count in self.attributions.items()},
            "attribution_accuracy": self.attribution_accuracy,
            "tolerance": TOLERANCE,
        }


def _summarize(kind: str, injections: Sequence[InjectionOutcome]) -> KindSummary:
    rated = [rate_attribution(injection) for injection in injections]
    seconds = [injection.seconds for injection in injections if injection.seconds is not None]
    return KindSummary(
        kind,
        len(injections),
        sum(injection.restarted for injection in injections),
        rated.count(Attribution.CORRECT),
        len(rated) - rated.count(Attribution.NOT_NEEDED),
        statistics.median(seconds) if seconds else None,
        max(seconds, default=None),
        max((each.detected_s for each in injections if each.detected_s is not None), default=None),
    )


def _run_json(outcome: RunOutcome, result: CheckResult) -> dict[str, Any]:
    return {
        "number": outcome.plan.number,
        "run_id": outcome.run_id,
        "state": outcome.state,
        "phones": outcome.phones,
        "bitwise": result.bitwise,
        "difference": result.difference,
        "violations": [f"{violation.invariant}: {violation.message}" for violation in result.violations],
        "injections": [_injection_json(injection) for injection in outcome.injections],
    }


def _injection_json(outcome: InjectionOutcome) -> dict[str, Any]:
    diagnosed = first_diagnosis(outcome)
    return {
        "kind": outcome.kind,
        "faults": [{"fault": each.fault.name, "phone": each.phone or "host"} for each in outcome.faults],
        "step": outcome.step,
        "seconds": outcome.seconds,
        "detected_s": outcome.detected_s,
        "phases": outcome.phases,
        "restarted": outcome.restarted,
        "hung": outcome.hung,
        "attribution": rate_attribution(outcome),
        "diagnosis": diagnosed.diagnosis if diagnosed else None,
        "incidents": [incident.message for incident in outcome.incidents],
    }
