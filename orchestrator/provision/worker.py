"""One phone's part of the work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Want
from orchestrator.provision.events import StepFinished, StepStarted
from orchestrator.provision.facts import Facts, parse_facts
from orchestrator.provision.preflight import Asked
from orchestrator.provision.progress import Ledger
from orchestrator.provision.report import StepResult, StepStatus
from orchestrator.provision.resources import script
from orchestrator.provision.steps import boot, keys, openmpi, sshd
from orchestrator.provision.steps.step import Site, Step

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

MANAGED_FILES: Final = (*keys.FILES, sshd.DROP_IN, *openmpi.FILES, boot.BOOT_SCRIPT)


def look(connection: PhoneConnection) -> Asked:
    sent = time.time()
    answer = connection.script(script("facts"), *MANAGED_FILES)
    return Asked(parse_facts(answer.stdout, answer.stderr), sent, time.time())


class Worker:
    """Takes one phone through steps, and tells the ledger."""

    def __init__(self, site: Site, want: Want, ledger: Ledger) -> None:
        self._site = site
        self._want = want
        self._ledger = ledger

    def take_through(self, steps: Sequence[Step]) -> bool:
        """Applies what is needed, then verifies it all with fresh facts. False: a step failed, the rest was left."""
        results = self._apply_all(steps)
        changed = [step for step, result in zip(steps, results, strict=False) if result.status is StepStatus.CHANGED]
        if changed and results[-1].status is not StepStatus.FAILED:
            results = self._verify(changed, results)
        for result in results:
            self._ledger.emit(StepFinished(self._site.phone, result))
        self._ledger.record(self._site.phone, *results)
        return all(result.status is not StepStatus.FAILED for result in results)

    def attempt(self, step: Step) -> StepResult:
        """A step that a phone can do without. What comes of it is told by `settle`, once others have been verified."""
        return self._apply(step)

    def settle(self, step: Step, result: StepResult, without: str) -> None:
        """`without`: what the phone is without it. Facts are asked for again only if nobody did since."""
        if result.status is StepStatus.CHANGED and step.check(self._facts, self._want):
            [result] = self._verify([step], [result])
        if result.status is StepStatus.FAILED:
            result = replace(result, status=StepStatus.SKIPPED)
            self._ledger.warn(self._site.phone, (f"{without}: {result.error}",))
        self._ledger.emit(StepFinished(self._site.phone, result))
        self._ledger.record(self._site.phone, result)

    def finish_with(self, step: Step) -> None:
        """A last step that proves itself."""
        result = self._apply(step)
        self._ledger.emit(StepFinished(self._site.phone, result))
        self._ledger.record(self._site.phone, result)

    @property
    def _facts(self) -> Facts:
        return self._ledger.facts[self._site.phone]

    def _apply_all(self, steps: Sequence[Step]) -> list[StepResult]:
        results: list[StepResult] = []
        for step in steps:
            results.append(self._apply(step))
            if results[-1].status is StepStatus.FAILED:
                break
        return results

    def _apply(self, step: Step) -> StepResult:
        changes = step.check(self._facts, self._want)
        if not changes:
            return StepResult(step.name, StepStatus.OK)
        self._ledger.emit(StepStarted(self._site.phone, step.name))
        started = time.monotonic()
        try:
            step.apply(self._site, self._facts, self._want)
        except PhoneError as error:
            return _failed(step, time.monotonic() - started, error)
        return StepResult(step.name, StepStatus.CHANGED, time.monotonic() - started, changes)

    def _verify(self, changed: list[Step], results: list[StepResult]) -> list[StepResult]:
        try:
            self._ledger.facts[self._site.phone] = look(self._site.connect()).facts
        except PhoneError as error:
            return [*results[:-1], _failed(changed[-1], results[-1].seconds, error)]
        left = {step.name: step.check(self._facts, self._want) for step in changed}
        return [_verified(result, left.get(result.step, ())) for result in results]


def _verified(result: StepResult, left: tuple[str, ...]) -> StepResult:
    if not left:
        return result
    return replace(
        result,
        status=StepStatus.FAILED,
        error=f"was done, and still there is to do: {'; '.join(left)}",
        remedy="does something else change this phone at the same time? Run it again",
    )


def _failed(step: Step, seconds: float, error: PhoneError) -> StepResult:
    return StepResult(step.name, StepStatus.FAILED, seconds, error=error.message, remedy=error.remedy)
