"""A campaign from run to run: runs that cannot be started, reference runs, limits, and journals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.chaos.campaign import Campaign
from orchestrator.chaos.catalog import CATALOG, Fault
from orchestrator.chaos.journal import Journal
from orchestrator.chaos.outcome import RunOutcome
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.report import CampaignReport
from orchestrator.errors import ClusterctlError, UsageError
from tests.orchestrator.chaos.samples import injection_outcome, run_outcome, saved


class StubDriver:
    """Runs end as scripted; None: the run cannot be started."""

    def __init__(self, directory: Path, *outcomes: RunOutcome | None) -> None:
        self._directory = directory
        self._outcomes: Iterator[RunOutcome | None] = iter(outcomes)
        self.supported: tuple[Fault, ...] = CATALOG
        self.reference_state = "done"
        self.plans: list[RunPlan] = []
        self.references = self.restored = 0

    def supported_faults(self) -> tuple[Fault, ...]:
        return self.supported

    def run_undisturbed(self, phones: int) -> RunOutcome:
        self.references += 1
        done = self.reference_state == "done"
        return run_outcome(
            saved(self._directory / "reference.safetensors") if done else None, state=self.reference_state
        )

    def run(self, plan: RunPlan) -> RunOutcome:
        self.plans.append(plan)
        if (outcome := next(self._outcomes)) is None:
            raise ClusterctlError("no run was started: phones cannot take part")
        return outcome

    def restore_phones(self) -> None:
        self.restored += 1


@pytest.fixture
def campaign(tmp_path: Path) -> Callable[[int], Campaign]:
    """Make a campaign with this number of faults that continues from the journal."""

    def make(faults: int) -> Campaign:
        journal = Journal(tmp_path / "chaos.jsonl", {"seed": 1})
        made = Campaign(CampaignReport(1), faults, 1.0, range(4, 5), lambda _: None, journal=journal)
        made.load_journal()
        return made

    return make


@pytest.fixture
def completed(tmp_path: Path) -> RunOutcome:
    """A run with one fault that kept all invariants."""
    injections = (injection_outcome(("throttling", "p1-01")),)
    return run_outcome(saved(tmp_path / "run.safetensors"), injections=injections)


def test_a_campaign_ends_after_the_requested_number_of_faults(
    tmp_path: Path, campaign: Callable[[int], Campaign], completed: RunOutcome
) -> None:
    driver, three = StubDriver(tmp_path, *[completed] * 3), campaign(3)
    three.run(driver)
    assert (len(driver.plans), driver.references) == (3, 1), "the reference run is reused"
    assert three.report.passed


def test_a_run_that_cannot_be_started_fails_the_campaign_and_is_repeated_by_the_next(
    tmp_path: Path, campaign: Callable[[int], Campaign], completed: RunOutcome
) -> None:
    driver, first = StubDriver(tmp_path, None, completed), campaign(1)
    first.run(driver)
    assert first.report.failed_starts == ["run 1: no run was started: phones cannot take part"]
    assert (first.report.passed, driver.restored) == (False, 1)
    second = campaign(1)
    assert [injection.kind for injection in second.report.injections] == ["throttling"], "read from the journal"
    assert second.report.passed


def test_a_broken_lab_ends_the_campaign(tmp_path: Path, campaign: Callable[[int], Campaign]) -> None:
    with pytest.raises(ClusterctlError, match="no run was started"):
        campaign(9).run(StubDriver(tmp_path, None, None))


def test_one_failed_start_is_forgiven_after_a_completed_run(
    tmp_path: Path, campaign: Callable[[int], Campaign], completed: RunOutcome
) -> None:
    made = campaign(2)
    made.run(StubDriver(tmp_path, None, completed, None, completed))
    assert len(made.report.failed_starts) == 2


def test_a_failed_reference_run_is_reported(
    tmp_path: Path, campaign: Callable[[int], Campaign], completed: RunOutcome
) -> None:
    driver, made = StubDriver(tmp_path, completed), campaign(1)
    driver.reference_state = "failed"
    with pytest.raises(ClusterctlError):
        made.run(driver)
    assert "the reference run run is failed" in made.report.failed_starts[0]
    assert driver.plans == []


def test_a_campaign_of_unsupported_faults_is_refused(tmp_path: Path) -> None:
    driver = StubDriver(tmp_path)
    driver.supported = tuple(fault for fault in CATALOG if fault.name != "corruption")
    made = Campaign(CampaignReport(1), 1, 1.0, range(4, 5), lambda _: None, kinds=["corruption"])
    with pytest.raises(UsageError, match="does not support corruption"):
        made.run(driver)


def test_no_run_is_started_after_the_time_limit(tmp_path: Path) -> None:
    driver = StubDriver(tmp_path)
    made = Campaign(CampaignReport(1), 1, -1.0, range(4, 5), lambda _: None)
    made.run(driver)
    assert (made.report.out_of_time, driver.plans) == (True, [])
