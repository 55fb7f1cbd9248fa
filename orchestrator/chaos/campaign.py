"""A campaign of runs under injected faults, bounded in number and in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.chaos.catalog import CATALOG, Fault
from orchestrator.chaos.driver import STEPS
from orchestrator.chaos.evaluate import evaluate
from orchestrator.chaos.journal import Journal
from orchestrator.chaos.outcome import RunOutcome
from orchestrator.chaos.plan import KINDS, RunPlan, generate_plans
from orchestrator.chaos.report import CampaignReport
from orchestrator.errors import ClusterctlError, UsageError

MAX_FAILED_STARTS = 2  # in a row: then the lab is broken, not a phone


class RunDriver(Protocol):
    """How runs are carried out: see driver.Driver."""

    def supported_faults(self) -> tuple[Fault, ...]: ...
    def run_undisturbed(self, phones: int) -> RunOutcome: ...
    def run(self, plan: RunPlan) -> RunOutcome: ...
    def restore_phones(self) -> None: ...


@dataclass
class Campaign:
    """`report` grows run by run, so that an interrupted campaign has one as well."""

    report: CampaignReport
    faults: int
    minutes: float
    phones: range
    on_note: Callable[[str], None]
    kinds: Collection[str] = KINDS
    journal: Journal | None = None
    _references: dict[int, RunOutcome] = field(default_factory=dict)
    _failed_starts: int = 0

    def load_journal(self) -> None:
        """Add the runs of an interrupted campaign to the report."""
        for outcome, result in self.journal.open() if self.journal else ():
            self.report.add(outcome, result)

    def run(self, driver: RunDriver) -> None:
        """When the time is up, no further run is started; the current one is completed."""
        deadline = time.monotonic() + 60 * self.minutes
        plans = self._remaining_plans(driver)
        while (left := self.faults - len(self.report.injections)) > 0:
            if time.monotonic() > deadline:
                self.report.out_of_time = True
                return
            self._carry_out(driver, next(plans).limited_to(left))

    def _remaining_plans(self, driver: RunDriver) -> Iterator[RunPlan]:
        """A run may end before all its injections were made; then later plans make up for them."""
        supported = driver.supported_faults()
        self.report.unsupported = tuple(fault.name for fault in CATALOG if fault not in supported)
        if set(self.kinds) <= set(self.report.unsupported):
            raise UsageError(f"this computer's kernel does not support {', '.join(self.kinds)}")
        done = {outcome.plan.number for outcome, _ in self.report.runs}
        plans = generate_plans(self.report.seed, self.phones, STEPS, supported, self.kinds)
        return (plan for plan in plans if plan.number not in done)

    def _carry_out(self, driver: RunDriver, plan: RunPlan) -> None:
        try:
            reference = self._reference(driver, plan.phones)
            outcome = driver.run(plan)
        except ClusterctlError as error:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise
            self.report.failed_starts.append(f"run {plan.number}: {error.message}")
            driver.restore_phones()
            return
        self._failed_starts = 0
        result = evaluate(outcome, reference)
        self.report.add(outcome, result)
        if self.journal:
            self.journal.add(outcome, result)

    def _reference(self, driver: RunDriver, phones: int) -> RunOutcome:
        """An undisturbed run on as many phones."""
        if phones not in self._references:
            self.on_note(f"reference run on {phones} phones, without faults")
            outcome = driver.run_undisturbed(phones)
            if outcome.checkpoint is None:
                raise ClusterctlError(f"the reference run {outcome.run_id} is {outcome.state}: {outcome.error}")
            self._references[phones] = outcome
        return self._references[phones]
