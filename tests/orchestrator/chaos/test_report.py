"""The report of a campaign."""

from __future__ import annotations

import io
import json

from rich.console import Console

from orchestrator.chaos.evaluate import Attribution, CheckResult, Invariant, Violation
from orchestrator.chaos.report import CampaignReport
from orchestrator.view.chaos import print_report
from tests.orchestrator.chaos.samples import KILLED, injection_outcome, run_outcome

PASSED = CheckResult((), bitwise=True, difference=0.0)


def report(*verdicts: CheckResult, correct: int = 1, wrong: int = 0) -> CampaignReport:
    injections = [
        injection_outcome(("rank killed", "p2-01"), incidents=(KILLED,), seconds=float(each))
        for each in range(1, correct + 1)
    ]
    injections += [injection_outcome(("rank killed", "p1-01"), incidents=(KILLED,), seconds=9.0) for _ in range(wrong)]
    made = CampaignReport(seed=3, unsupported=("corruption",))
    for result in verdicts:
        made.add(run_outcome(None, injections=tuple(injections)), result)
    return made


def shown(made: CampaignReport) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_report(console, made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_kind_has_median_and_worst_times() -> None:
    (row,) = report(PASSED, correct=4).by_kind
    assert (row.kind, row.injections, row.restarts, row.correct, row.rated) == ("rank killed", 4, 4, 4, 4)
    assert (row.median_s, row.worst_s) == (2.5, 4.0)


def test_one_wrong_diagnosis_in_twenty_is_allowed_and_two_are_not() -> None:
    assert report(PASSED, correct=19, wrong=1).passed
    assert not report(PASSED, correct=18, wrong=2).passed


def test_a_violation_fails_the_campaign() -> None:
    made = report(
        CheckResult((Violation(Invariant.NO_LOST_STEP, "step 4 was repeated"),), bitwise=True, difference=0.0)
    )
    assert not made.passed
    assert (made.runs_violating(Invariant.NO_LOST_STEP), made.runs_violating(Invariant.RUN_ENDS)) == (1, 0)
    assert "violated by 1 run" in shown(made)


def test_a_fault_that_needs_no_diagnosis_is_not_rated() -> None:
    made = CampaignReport(seed=1)
    made.add(run_outcome(None, injections=(injection_outcome(("throttling", "p1-01")),)), PASSED)
    assert made.attributions[Attribution.NOT_NEEDED] == 1
    assert made.passed


def test_the_report_is_printed_and_available_as_json() -> None:
    made = report(PASSED, correct=2)
    text = shown(made)
    assert "rank killed" in text
    assert "2 of 2" in text
    document = json.loads(json.dumps(made.as_json()))
    assert (document["passed"], document["faults"], document["unsupported"]) == (True, 2, ["corruption"])
    assert document["runs"][0]["injections"][0]["diagnosis"] == "p2-01 (sw2:1): rank was killed (signal 9 (Killed))"
