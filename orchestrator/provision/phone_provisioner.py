"""Provisioning of one phone: its facts, and running steps on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from orchestrator.fleet import PhoneConnection
from orchestrator.provision.desired_state import DesiredState, ProvisionStep, SshTarget
from orchestrator.provision.engine import StepResult, StepRunner, StepStarted, StepStatus
from orchestrator.provision.preflight import TimedFacts
from orchestrator.provision.progress import ProvisionProgress
from orchestrator.provision.resources import read_script
from orchestrator.provision.steps import boot, keys, openmpi, sshd
from orchestrator.provision.termux_facts import TermuxFacts, parse_termux_facts

MANAGED_FILES: Final = (*keys.FILES, sshd.DROP_IN, *openmpi.FILES, boot.BOOT_SCRIPT)


def collect_facts(connection: PhoneConnection) -> TimedFacts:
    sent = time.time()
    answer = connection.script(read_script("facts"), *MANAGED_FILES)
    return TimedFacts(parse_termux_facts(answer.stdout, answer.stderr), (sent, time.time()))


class PhoneProvisioner:
    """Runs steps on one phone and records their results."""

    def __init__(self, target: SshTarget, desired: DesiredState, progress: ProvisionProgress) -> None:
        self._target = target
        self._phone = target.phone
        self._progress = progress
        self._runner = StepRunner(
            target,
            progress.facts[target.phone],
            desired,
            collect_facts=self._collect_facts,
            on_start=lambda step: progress.emit(StepStarted(target.phone, step)),
        )

    def run_steps(self, steps: Sequence[ProvisionStep]) -> bool:
        """Apply the steps, then verify them. False: a step failed, and the steps after it were not run."""
        results = self._runner.run(steps)
        self._progress.finish_steps(self._phone, *results)
        return all(result.status is not StepStatus.FAILED for result in results)

    def apply_optional(self, step: ProvisionStep) -> StepResult:
        """Apply a step that the phone can work without. `finish_optional` verifies and records the result."""
        return self._runner.apply(step)

    def finish_optional(self, step: ProvisionStep, result: StepResult, consequence: str) -> None:
        """Record an optional step; if it failed, warn of the consequence.

        Facts are collected again only if the facts collected since then do not show the change.
        """
        if result.status is StepStatus.CHANGED and not self._runner.is_done(step):
            [result] = self._runner.verify([step], [result])
        if result.status is StepStatus.FAILED:
            result = replace(result, status=StepStatus.SKIPPED)
            self._progress.warn(self._phone, (f"{consequence}: {result.error}",))
        self._progress.finish_steps(self._phone, result)

    def run_unverified(self, step: ProvisionStep) -> None:
        """Run a step that is its own verification."""
        self._progress.finish_steps(self._phone, self._runner.apply(step))

    def _collect_facts(self) -> TermuxFacts:
        facts = collect_facts(self._target.connect()).facts
        self._progress.facts[self._phone] = facts
        return facts
