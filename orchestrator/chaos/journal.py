"""What came of each run, written down as soon as it is over: chaos that was interrupted goes on from there.

The first line tells the plan; then one line a run. A torn last line is a run to be done again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.chaos.catalogue import BY_NAME
from orchestrator.chaos.evaluate import Breach, Promise, Verdict
from orchestrator.chaos.outcome import BlowStory, Hit, RunStory
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.run_log import Said
from orchestrator.errors import UsageError
from orchestrator.records.causes import parse_cause

Result = tuple[RunStory, Verdict]


@dataclass(frozen=True)
class Journal:
    path: Path
    plan: Mapping[str, Any]  # what decides the plan: only what was done of the same one counts

    def open(self) -> list[Result]:
        """What is in it. Begins a new one where there is none."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        head, *lines = text[: text.rfind("\n") + 1].splitlines() or [""]
        if not head:
            self.path.write_text(json.dumps(self.plan) + "\n", encoding="utf-8")
            return []
        try:
            self._compare(json.loads(head))
            results = [_parse(json.loads(line)) for line in lines]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{self.path} is not a journal of chaos", remedy="name another --journal") from None
        self.path.write_text("".join(f"{line}\n" for line in (head, *lines)), encoding="utf-8")
        return results

    def add(self, story: RunStory, verdict: Verdict) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_told(story, verdict)) + "\n")

    def _compare(self, plan: Mapping[str, Any]) -> None:
        other = [name for name, value in self.plan.items() if plan.get(name) != value]
        if other:
            told = ", ".join(f"--{name}" for name in other)
            raise UsageError(
                f"{self.path} was begun with another {told}", remedy="the same again, or another --journal"
            )


def _told(story: RunStory, verdict: Verdict) -> dict[str, Any]:
    return {
        "number": story.plan.number,
        "on": story.plan.phones,
        "run_id": story.run_id,
        "state": story.state,
        "error": story.error,
        "phones": story.phones,
        "blows": [_told_blow(blow) for blow in story.blows],
        "breaches": [[breach.promise, breach.message] for breach in verdict.breaches],
        "to_the_bit": verdict.to_the_bit,
        "difference": verdict.difference,
    }


def _told_blow(blow: BlowStory) -> dict[str, Any]:
    return {
        "name": blow.name,
        "hits": [[hit.fault.name, hit.phone] for hit in blow.hits],
        "at": blow.at,
        "step": blow.step,
        "incidents": [asdict(said) for said in blow.incidents],
        "seconds": blow.seconds,
        "noticed_s": blow.noticed_s,
        "phases": dict(blow.phases),
        "restarted": blow.restarted,
        "hung": blow.hung,
    }


def _parse(raw: dict[str, Any]) -> Result:
    """Steps and weights are not in it: they have been judged."""
    story = RunStory(
        RunPlan(raw["number"], raw["on"], ()),
        raw["run_id"],
        raw["state"],
        raw["error"],
        tuple(map(_parse_blow, raw["blows"])),
        tuple(map(tuple, raw["phones"])),
        (),
        None,
    )
    breaches = tuple(Breach(Promise(promise), message) for promise, message in raw["breaches"])
    return story, Verdict(breaches, raw["to_the_bit"], raw["difference"])


def _parse_blow(raw: dict[str, Any]) -> BlowStory:
    hits = tuple(Hit(BY_NAME[fault], phone) for fault, phone in raw["hits"])
    return BlowStory(**{**raw, "hits": hits, "incidents": tuple(map(_parse_said, raw["incidents"]))})


def _parse_said(raw: dict[str, Any]) -> Said:
    return Said(**{**raw, "cause": parse_cause(raw["cause"]), "phones": tuple(raw["phones"])})
