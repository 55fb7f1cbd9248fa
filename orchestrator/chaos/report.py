"""All that chaos did and what came of it, as figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.chaos.catalogue import CATALOGUE, TWO_AT_ONCE
from orchestrator.chaos.evaluate import TOLERANCE, Attribution, Breach, Promise, Verdict, cause, first_cause
from orchestrator.chaos.outcome import BlowStory, RunStory

RIGHT_AT_LEAST = 0.95  # of first causes


@dataclass(frozen=True)
class Row:
    """All blows of one kind."""

    kind: str
    blows: int
    restarts: int
    right: int
    judged: int  # those where there was something to name, or somebody was blamed
    median_s: float | None
    worst_s: float | None
    noticed_s: float | None  # the worst, of those where the run was started again


@dataclass
class Report:
    seed: int
    missing: tuple[str, ...] = ()  # faults that this kernel does not offer
    runs: list[tuple[RunStory, Verdict]] = field(default_factory=list)
    not_carried_out: list[str] = field(default_factory=list)  # runs that did not even begin, and why
    out_of_time: bool = False
    interrupted: bool = False

    def add(self, story: RunStory, verdict: Verdict) -> None:
        self.runs.append((story, verdict))

    @property
    def blows(self) -> list[BlowStory]:
        return [blow for story, _ in self.runs for blow in story.blows]

    @property
    def breaches(self) -> list[tuple[RunStory, Breach]]:
        return [(story, breach) for story, verdict in self.runs for breach in verdict.breaches]

    def broken(self, promise: Promise) -> int:
        """Runs that broke it."""
        return len({story.run_id for story, breach in self.breaches if breach.promise is promise})

    @property
    def causes(self) -> dict[Attribution, int]:
        told = [cause(blow) for blow in self.blows]
        return {each: told.count(each) for each in Attribution}

    @property
    def right_share(self) -> float:
        counted = self.causes
        judged = sum(counted.values()) - counted[Attribution.NONE]
        return counted[Attribution.RIGHT] / judged if judged else 1.0

    @property
    def kept(self) -> bool:
        """All promises."""
        return not self.breaches and not self.not_carried_out and self.right_share >= RIGHT_AT_LEAST

    @property
    def rows(self) -> list[Row]:
        names = [*(fault.name for fault in CATALOGUE), TWO_AT_ONCE]
        return [_row(name, told) for name in names if (told := [blow for blow in self.blows if blow.name == name])]

    def worst_difference(self, *, to_the_bit: bool) -> float | None:
        found = [each.difference for _, each in self.runs if each.to_the_bit == to_the_bit]
        return max((each for each in found if each is not None), default=None)

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "kept": self.kept,
            "out_of_time": self.out_of_time,
            "interrupted": self.interrupted,
            "not_carried_out": self.not_carried_out,
            "faults": len(self.blows),
            "runs": [_run_json(story, verdict) for story, verdict in self.runs],
            "kinds": [asdict(row) for row in self.rows],
            "not_offered": self.missing,
            "broken": {promise.value: self.broken(promise) for promise in Promise},
            "causes": {each.value: count for each, count in self.causes.items()},
            "right_share": self.right_share,
            "tolerance": TOLERANCE,
        }


def _row(kind: str, blows: Sequence[BlowStory]) -> Row:
    told = [cause(blow) for blow in blows]
    seconds = [blow.seconds for blow in blows if blow.seconds is not None]
    return Row(
        kind,
        len(blows),
        sum(blow.restarted for blow in blows),
        told.count(Attribution.RIGHT),
        len(told) - told.count(Attribution.NONE),
        statistics.median(seconds) if seconds else None,
        max(seconds, default=None),
        max((blow.noticed_s for blow in blows if blow.noticed_s is not None), default=None),
    )


def _run_json(story: RunStory, verdict: Verdict) -> dict[str, Any]:
    return {
        "number": story.plan.number,
        "run_id": story.run_id,
        "state": story.state,
        "phones": story.phones,
        "to_the_bit": verdict.to_the_bit,
        "difference": verdict.difference,
        "breaches": [f"{breach.promise}: {breach.message}" for breach in verdict.breaches],
        "blows": [_blow_json(blow) for blow in story.blows],
    }


def _blow_json(blow: BlowStory) -> dict[str, Any]:
    return {
        "kind": blow.name,
        "hits": [{"fault": hit.fault.name, "phone": hit.phone or "host"} for hit in blow.hits],
        "step": blow.step,
        "seconds": blow.seconds,
        "noticed_s": blow.noticed_s,
        "phases": blow.phases,
        "restarted": blow.restarted,
        "hung": blow.hung,
        "cause": cause(blow),
        "named": named.diagnosis if (named := first_cause(blow)) else None,
        "incidents": [said.message for said in blow.incidents],
    }
