"""Chaos in portions: what one of them wrote down counts for the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.chaos.evaluate import Attribution, Breach, Promise, Verdict, cause
from orchestrator.chaos.journal import Journal
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.report import Report
from orchestrator.errors import UsageError
from tests.orchestrator.chaos.stories import FOUR, KILLED, blow, story

PLAN = {"seed": 1, "faults": 9, "phones": [4, 5], "only": ["rank killed"]}
BROKEN = Verdict((Breach(Promise.STEPS, "step 4 was done again"),), to_the_bit=False, difference=1e-6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chaos.jsonl"


def two_runs(path: Path) -> None:
    journal = Journal(path, PLAN)
    assert journal.open() == []
    struck = replace(blow(("rank killed", "p2-01"), incidents=(KILLED,)), noticed_s=0.5, phases={"noticing": 0.4})
    journal.add(story(None, blows=(struck,), phones=(FOUR, FOUR[1:])), BROKEN)
    later = replace(story(None, blows=(blow(("throttling", "p1-01")),)), plan=RunPlan(2, 5, ()))
    journal.add(later, Verdict((), to_the_bit=True, difference=0.0))


def test_what_was_written_down_is_judged_alike(path: Path) -> None:
    two_runs(path)
    (first, verdict), (second, _) = found = Journal(path, PLAN).open()
    assert verdict == BROKEN
    assert (first.plan.number, first.phones, second.plan.number) == (1, (FOUR, FOUR[1:]), 2)
    (struck,) = first.blows
    assert (cause(struck), struck.noticed_s, struck.phases) == (Attribution.RIGHT, 0.5, {"noticing": 0.4})
    report = Report(1)
    for each in found:
        report.add(*each)
    assert [(row.kind, row.blows, row.right) for row in report.rows] == [("rank killed", 1, 1), ("throttling", 1, 0)]
    assert report.broken(Promise.STEPS) == 1


def test_a_torn_line_is_a_run_to_be_done_again(path: Path) -> None:
    two_runs(path)
    path.write_text(path.read_text()[:-40])
    assert [each.plan.number for each, _ in Journal(path, PLAN).open()] == [1]
    assert path.read_text().endswith("\n")


def test_another_plan_is_refused(path: Path) -> None:
    two_runs(path)
    with pytest.raises(UsageError, match="was begun with another --seed, --faults"):
        Journal(path, {**PLAN, "seed": 2, "faults": 200}).open()


@pytest.mark.parametrize("text", ["what\n", "[]\n", '{"seed": 1}\n{"number": 1}\n'])
def test_what_is_no_journal_is_left_alone(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(UsageError):
        Journal(path, {"seed": 1}).open()
    assert path.read_text() == text
