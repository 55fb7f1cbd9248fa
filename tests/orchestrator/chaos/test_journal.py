"""A campaign that continues from the journal of an interrupted one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.chaos.evaluate import Attribution, CheckResult, Invariant, Violation, rate_attribution
from orchestrator.chaos.journal import Journal
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.report import CampaignReport
from orchestrator.errors import UsageError
from tests.orchestrator.chaos.samples import FOUR, KILLED, injection_outcome, run_outcome

PARAMETERS = {"seed": 1, "faults": 9, "phones": [4, 5], "only": ["rank killed"]}
VIOLATING = CheckResult((Violation(Invariant.NO_LOST_STEP, "step 4 was repeated"),), bitwise=False, difference=1e-6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chaos.jsonl"


def two_runs(path: Path) -> None:
    journal = Journal(path, PARAMETERS)
    assert journal.open() == []
    injected = replace(
        injection_outcome(("rank killed", "p2-01"), incidents=(KILLED,)), detected_s=0.5, phases={"detection": 0.4}
    )
    journal.add(run_outcome(None, injections=(injected,), phones=(FOUR, FOUR[1:])), VIOLATING)
    later = replace(run_outcome(None, injections=(injection_outcome(("throttling", "p1-01")),)), plan=RunPlan(2, 5, ()))
    journal.add(later, CheckResult((), bitwise=True, difference=0.0))


def test_runs_are_read_back_as_they_were_written(path: Path) -> None:
    two_runs(path)
    (first, result), (second, _) = found = Journal(path, PARAMETERS).open()
    assert result == VIOLATING
    assert (first.plan.number, first.phones, second.plan.number) == (1, (FOUR, FOUR[1:]), 2)
    (injected,) = first.injections
    assert (rate_attribution(injected), injected.detected_s, injected.phases) == (
        Attribution.CORRECT,
        0.5,
        {"detection": 0.4},
    )
    report = CampaignReport(1)
    for each in found:
        report.add(*each)
    assert [(row.kind, row.injections, row.correct) for row in report.by_kind] == [
        ("rank killed", 1, 1),
        ("throttling", 1, 0),
    ]
    assert report.runs_violating(Invariant.NO_LOST_STEP) == 1


def test_a_run_with_a_torn_line_is_repeated(path: Path) -> None:
    two_runs(path)
    path.write_text(path.read_text()[:-40])
    assert [each.plan.number for each, _ in Journal(path, PARAMETERS).open()] == [1]
    assert path.read_text().endswith("\n")


def test_a_journal_of_another_plan_is_refused(path: Path) -> None:
    two_runs(path)
    with pytest.raises(UsageError, match="was started with different values for --seed, --faults"):
        Journal(path, {**PARAMETERS, "seed": 2, "faults": 200}).open()


@pytest.mark.parametrize("text", ["what\n", "[]\n", '{"seed": 1}\n{"number": 1}\n'])
def test_a_file_that_is_not_a_journal_is_left_alone(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(UsageError):
        Journal(path, {"seed": 1}).open()
    assert path.read_text() == text
