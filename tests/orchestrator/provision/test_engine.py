"""The step engine, with steps that raise a counter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.errors import PhoneError
from orchestrator.provision.engine import StepResult, StepRunner, StepStatus, dry_run_result
from phone_agent.contract.errors import ErrorCode

OK, CHANGED, FAILED = StepStatus.OK, StepStatus.CHANGED, StepStatus.FAILED


class Counter:
    """The phone: facts are its value when they are collected."""

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.collected = 0

    def collect(self) -> int:
        self.collected += 1
        return self.value


@dataclass
class Raise:
    """Wants the counter to be at least `to`; writes `writes` when applied."""

    name: str
    to: int
    writes: int | None = None
    error: str = ""

    def plan(self, facts: int, desired: None) -> tuple[str, ...]:
        return (f"raise to {self.to}",) if facts < self.to else ()

    def apply(self, target: Counter, facts: int, desired: None) -> None:
        if self.error:
            raise PhoneError(self.error, code=ErrorCode.COMMAND_FAILED, remedy="fix it")
        target.value = self.to if self.writes is None else self.writes


def runner(counter: Counter, started: list[str] | None = None) -> StepRunner[Counter, int, None]:
    on_start = (started if started is not None else []).append
    return StepRunner(counter, counter.value, None, collect_facts=counter.collect, on_start=on_start)


def statuses(results: list[StepResult]) -> list[tuple[str, StepStatus]]:
    return [(result.step, result.status) for result in results]


def test_only_pending_steps_are_applied_and_verified_together() -> None:
    counter, started = Counter(1), list[str]()
    results = runner(counter, started).run([Raise("a", 1), Raise("b", 2), Raise("c", 3)])
    assert statuses(results) == [("a", OK), ("b", CHANGED), ("c", CHANGED)]
    assert (started, counter.collected) == (["b", "c"], 1)
    assert results[1].changes == ("raise to 2",)


def test_no_facts_are_collected_if_nothing_changed() -> None:
    counter = Counter(5)
    assert statuses(runner(counter).run([Raise("a", 1)])) == [("a", OK)]
    assert counter.collected == 0


def test_a_failed_step_stops_the_steps_after_it() -> None:
    counter = Counter()
    results = runner(counter).run([Raise("a", 1, error="broken"), Raise("b", 2)])
    assert statuses(results) == [("a", FAILED)]
    assert (results[0].error, results[0].remedy, counter.collected) == ("broken", "fix it", 0)


def test_a_step_without_effect_fails() -> None:
    results = runner(Counter()).run([Raise("a", 1), Raise("b", 2, writes=1)])
    assert statuses(results) == [("a", CHANGED), ("b", FAILED)]
    assert "raise to 2" in (results[1].error or "")


def test_an_effect_may_show_late() -> None:
    values: Iterator[int] = iter([0, 0, 1])
    late = StepRunner(Counter(), 0, None, collect_facts=lambda: next(values), on_start=lambda _: None)
    assert statuses(late.run([Raise("a", 1)], patience_s=60.0)) == [("a", CHANGED)]
    assert late.facts == 1


def test_a_phone_that_is_lost_during_verification_fails_the_last_changed_step() -> None:
    def lose() -> int:
        raise PhoneError("connection lost", code=ErrorCode.CONNECTION_LOST)

    lost = StepRunner(Counter(), 0, None, collect_facts=lose, on_start=lambda _: None)
    results = lost.run([Raise("a", 1), Raise("b", 2)])
    assert statuses(results) == [("a", CHANGED), ("b", FAILED)]
    assert results[1].error == "connection lost"


def test_a_dry_run_only_plans() -> None:
    assert dry_run_result("a", ("raise to 1",)).status is StepStatus.PLANNED
    assert dry_run_result("a", ()) == StepResult("a", OK)
