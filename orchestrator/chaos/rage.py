"""Chaos from its first blow to its last: bounded in number and in time."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.chaos.catalogue import CATALOGUE
from orchestrator.chaos.drive import STEPS, Driver, OnBlow
from orchestrator.chaos.ground import Ground
from orchestrator.chaos.injuries import offered
from orchestrator.chaos.judge import judge
from orchestrator.chaos.plan import endless_plan, first_blows
from orchestrator.chaos.report import Report
from orchestrator.chaos.story import RunStory

OnNote = Callable[[str], None]


def rage(
    ground: Ground, *, seed: int, faults: int, minutes: float, phones: range, on_blow: OnBlow, on_note: OnNote
) -> Report:
    """Ends early when the time is up: a run that has begun is carried to its end."""
    deadline = time.monotonic() + 60 * minutes
    possible = offered(ground)
    report = Report(seed, tuple(fault.name for fault in CATALOGUE if fault not in possible))
    driver = Driver(ground, seed, on_blow)
    references: dict[int, RunStory] = {}
    for plan in first_blows(endless_plan(seed, phones, STEPS, possible), faults):
        if time.monotonic() > deadline:
            report.out_of_time = True
            break
        if plan.phones not in references:
            on_note(f"an undisturbed run on {plan.phones} phones, to compare with")
            references[plan.phones] = driver.undisturbed(plan.phones)
        story = driver.run(plan)
        report.add(story, judge(story, references[plan.phones]))
    return report
