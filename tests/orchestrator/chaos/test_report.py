"""The figures of chaos."""

from __future__ import annotations

import io
import json

from rich.console import Console

from orchestrator.chaos.evaluate import Attribution, Breach, Promise, Verdict
from orchestrator.chaos.report import Report
from orchestrator.view.chaos import print_report
from tests.orchestrator.chaos.stories import KILLED, blow, story

KEPT = Verdict((), to_the_bit=True, difference=0.0)


def report(*verdicts: Verdict, right: int = 1, wrong: int = 0) -> Report:
    blows = [blow(("rank killed", "p2-01"), incidents=(KILLED,), seconds=float(each)) for each in range(1, right + 1)]
    blows += [blow(("rank killed", "p1-01"), incidents=(KILLED,), seconds=9.0) for _ in range(wrong)]
    made = Report(seed=3, missing=("corruption",))
    for verdict in verdicts:
        made.add(story(None, blows=tuple(blows)), verdict)
    return made


def shown(made: Report) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_report(console, made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_row_has_median_and_worst() -> None:
    (row,) = report(KEPT, right=4).rows
    assert (row.kind, row.blows, row.restarts, row.right, row.judged) == ("rank killed", 4, 4, 4, 4)
    assert (row.median_s, row.worst_s) == (2.5, 4.0)


def test_one_wrong_cause_of_twenty_is_allowed_and_two_are_not() -> None:
    assert report(KEPT, right=19, wrong=1).kept
    assert not report(KEPT, right=18, wrong=2).kept


def test_a_breach_breaks_a_promise_whatever_was_named() -> None:
    made = report(Verdict((Breach(Promise.STEPS, "step 4 was done again"),), to_the_bit=True, difference=0.0))
    assert not made.kept
    assert (made.broken(Promise.STEPS), made.broken(Promise.ENDS)) == (1, 0)
    assert "violated by 1 run" in shown(made)


def test_nothing_to_name_counts_neither_way() -> None:
    made = Report(seed=1)
    made.add(story(None, blows=(blow(("throttling", "p1-01")),)), KEPT)
    assert made.causes[Attribution.NONE] == 1
    assert made.kept


def test_it_is_shown_on_a_screen_and_as_json() -> None:
    made = report(KEPT, right=2)
    text = shown(made)
    assert "rank killed" in text
    assert "2 of 2" in text
    document = json.loads(json.dumps(made.as_json()))
    assert (document["kept"], document["faults"], document["not_offered"]) == (True, 2, ["corruption"])
    assert document["runs"][0]["blows"][0]["named"] == "p2-01 (sw2:1): its rank was killed (signal 9 (Killed))"
