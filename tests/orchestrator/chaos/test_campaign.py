"""Chaos from run to run: what does not even begin, and where to go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.chaos.campaign import Rage
from orchestrator.chaos.journal import Journal
from orchestrator.chaos.outcome import RunStory
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.report import Report
from orchestrator.errors import ClusterctlError
from tests.orchestrator.chaos.stories import blow, saved, story

PLAN = RunPlan(1, 4, ())


def rage(path: Path) -> Rage:
    journal = Journal(path / "chaos.jsonl", {"seed": 1})
    made = Rage(Report(1), 9, 1.0, range(4, 5), lambda *_: None, lambda _: None, journal=journal)
    made.take_up()
    return made


def driver(path: Path, *runs: RunStory | None) -> Any:
    """None: it does not begin."""
    coming: Iterator[RunStory | None] = iter(runs)

    def run(_plan: RunPlan) -> RunStory:
        if (found := next(coming)) is None:
            raise ClusterctlError("no run began: phones cannot take part")
        return found

    untouched = SimpleNamespace(spec=SimpleNamespace(phones=()))
    return SimpleNamespace(
        ground=untouched, run=run, undisturbed=lambda _: story(saved(path / "reference.safetensors"))
    )


def test_a_run_that_does_not_begin_is_a_failure_and_done_again_next_time(tmp_path: Path) -> None:
    one = rage(tmp_path)
    whole = story(saved(tmp_path / "a.safetensors"), blows=(blow(("throttling", "p1-01")),))
    drives = driver(tmp_path, None, whole, None)
    for _ in range(3):
        one._carry_out(drives, PLAN)
    assert one.report.not_carried_out == ["run 1: no run began: phones cannot take part"] * 2
    assert not one.report.kept
    again = rage(tmp_path)
    assert [blow.name for blow in again.report.blows] == ["throttling"]
    assert again.report.kept


def test_a_lab_that_is_broken_is_not_tried_for_ever(tmp_path: Path) -> None:
    one, drives = rage(tmp_path), driver(tmp_path, None, None)
    one._carry_out(drives, PLAN)
    with pytest.raises(ClusterctlError, match="no run began"):
        one._carry_out(drives, PLAN)


def test_an_undisturbed_run_that_fails_is_nothing_to_compare_with(tmp_path: Path) -> None:
    drives = driver(tmp_path)
    drives.undisturbed = lambda _: story(None, state="failed")
    one = rage(tmp_path)
    one._carry_out(drives, PLAN)
    assert "the undisturbed run run is failed" in one.report.not_carried_out[0]
