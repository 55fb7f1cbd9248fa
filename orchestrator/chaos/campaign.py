"""Chaos from its first blow to its last: bounded in number and in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from orchestrator.chaos.catalogue import CATALOGUE
from orchestrator.chaos.drive import STEPS, Driver, OnBlow
from orchestrator.chaos.evaluate import judge
from orchestrator.chaos.faults import heal, offered
from orchestrator.chaos.journal import Journal
from orchestrator.chaos.outcome import RunStory
from orchestrator.chaos.plan import KINDS, RunPlan, endless_plan
from orchestrator.chaos.report import Report
from orchestrator.chaos.testbed import Ground
from orchestrator.errors import ClusterctlError, UsageError

FAILURES = 2  # runs in a row that did not even begin: then the lab is broken, not a phone

OnNote = Callable[[str], None]


@dataclass
class Rage:
    """`report` grows as it goes on: whoever interrupts it has what came of it so far."""

    report: Report
    faults: int
    minutes: float
    phones: range
    on_blow: OnBlow
    on_note: OnNote
    kinds: Collection[str] = KINDS
    journal: Journal | None = None
    _references: dict[int, RunStory] = field(default_factory=dict)
    _failures: int = 0

    def take_up(self) -> None:
        """What a journal tells of runs that are over."""
        for story, verdict in self.journal.open() if self.journal else ():
            self.report.add(story, verdict)

    def over(self, ground: Ground) -> None:
        """Ends early when the time is up: a run that has begun is carried to its end."""
        deadline = time.monotonic() + 60 * self.minutes
        driver = Driver(ground, self.report.seed, self.on_blow)
        plans = self._plans(ground)
        while (left := self.faults - len(self.report.blows)) > 0:
            if time.monotonic() > deadline:
                self.report.out_of_time = True
                return
            self._carry_out(driver, next(plans).at_most(left))

    def _plans(self, ground: Ground) -> Iterator[RunPlan]:
        """Those that are not done yet. A run may be over before all its blows have come: then the next ones make up."""
        possible = offered(ground)
        self.report.missing = tuple(fault.name for fault in CATALOGUE if fault not in possible)
        if set(self.kinds) <= set(self.report.missing):
            raise UsageError(f"this kernel does not offer {', '.join(self.kinds)}")
        done = {story.plan.number for story, _ in self.report.runs}
        plans = endless_plan(self.report.seed, self.phones, STEPS, possible, self.kinds)
        return (plan for plan in plans if plan.number not in done)

    def _carry_out(self, driver: Driver, plan: RunPlan) -> None:
        try:
            reference = self._reference(driver, plan.phones)
            story = driver.run(plan)
        except ClusterctlError as error:
            self._failures += 1
            if self._failures >= FAILURES:
                raise
            self.report.not_carried_out.append(f"run {plan.number}: {error.message}")
            heal(driver.ground)
            return
        self._failures = 0
        verdict = judge(story, reference)
        self.report.add(story, verdict)
        if self.journal:
            self.journal.add(story, verdict)

    def _reference(self, driver: Driver, phones: int) -> RunStory:
        if phones not in self._references:
            self.on_note(f"an undisturbed run on {phones} phones, to compare with")
            story = driver.undisturbed(phones)
            if story.checkpoint is None:
                raise ClusterctlError(f"the undisturbed run {story.run_id} is {story.state}: {story.error}")
            self._references[phones] = story
        return self._references[phones]
