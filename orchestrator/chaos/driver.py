"""Carries out the plan of a run: launches it on the lab, injects and reverts faults, and records what it observes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orchestrator.chaos.catalog import Effect, Fault, Target
from orchestrator.chaos.evaluate import assign_incidents
from orchestrator.chaos.faults import Revert, TargetPhone, inject, revert_all, supported_faults
from orchestrator.chaos.outcome import InjectedFault, InjectionOutcome, RunOutcome
from orchestrator.chaos.plan import Injection, PlannedFault, RunPlan
from orchestrator.chaos.run_log import RunLog
from orchestrator.chaos.scenarios import CHECKPOINT_EVERY, RESUMES, SCENARIOS, Stage, Staged
from orchestrator.chaos.testbed import Testbed
from orchestrator.errors import ClusterctlError
from orchestrator.lab.client import wait_for_sshd
from orchestrator.records import checkpoints

STEPS = 240
HANG_S = 120.0  # without a step or an end, a run counts as hung
_TRAINING = (
    *("--model", "lenet", "--data", "synthetic", "--global-batch", "48"),
    # A low learning rate and smoothed labels: there is something to learn until the last step.
    *("--lr", "0.002", "--label-smoothing", "0.1"),
    # Fixed instead of autotuned, so that results can be compared bit by bit.
    *("--algorithm", "ring", "--wire", "fp32", "--bucket-size", "1MB", "--load-balancing", "off"),
)
_RECOVERY = ("--min-phones", "2", "--max-restarts", "100")
# How long a fault lasts that the run can live with
_FAULT_STEPS, _FAULT_S, _LONGEST_FAULT_S = 8, 1.5, 8.0
_HOST_AWAY_S = {"host dies": 2.0, "host reboot": 5.0}
_POLL_S = 0.05

OnInjection = Callable[[RunPlan, InjectionOutcome], None]


@dataclass
class _ActiveInjection:
    """Faults that are in effect."""

    injection: Injection
    faults: list[InjectedFault]
    reverts: list[Revert]
    at: float
    attempt: int
    step: int
    incidents: int  # that were recorded before
    durable_step: int | None = None

    @property
    def must_restart(self) -> bool:
        return any(planned.fault.effect is Effect.RESTARTS for planned in self.injection.faults)


@dataclass
class Driver:
    testbed: Testbed
    seed: int  # of the training: initial weights and sample order
    on_injection: OnInjection = lambda _plan, _outcome: None

    def supported_faults(self) -> tuple[Fault, ...]:
        return supported_faults(self.testbed)

    def run_undisturbed(self, phones: int) -> RunOutcome:
        return self.run(RunPlan(0, phones, ()))

    def run(self, plan: RunPlan) -> RunOutcome:
        return _Run(self, plan).carry_out()

    def restore_phones(self) -> None:
        revert_all(self.testbed)


class _Run:
    def __init__(self, driver: Driver, plan: RunPlan) -> None:
        self._driver, self._testbed, self._plan = driver, driver.testbed, plan
        self._names = tuple(phone.name for phone in self._testbed.phones(plan.phones))
        self._outcomes: list[InjectionOutcome] = []
        self._hung = False
        # A run ends at each injection that resumes it
        self._last_steps = [each.at_step for each in plan.injections if each.kind == RESUMES] + [STEPS]

    def carry_out(self) -> RunOutcome:
        staged = any(planned.fault.target is Target.RUN for each in self._plan.injections for planned in each.faults)
        saving = ("--checkpoint-every", str(CHECKPOINT_EVERY)) if staged else ()
        run_id = self._launch(*_TRAINING, *saving, "--seed", str(self._driver.seed))
        try:
            self._log = RunLog(self._testbed.store, run_id)
            for injection in self._plan.injections:
                due = self._await(lambda injection=injection: self._is_due(injection))  # type: ignore[misc]
                if due and not self._is_too_late(injection):
                    self._carry_out_injection(injection)
            self._await(lambda: False)
        finally:
            self._clean_up()
        return self._outcome()

    def _launch(self, *flags: str) -> str:
        """Start a run, and return its id."""
        self._known = {record.run_id for record in self._testbed.store.all()}
        watching = ("--json",) if self._plan.attached else ("--detach",)
        flags = (*flags, *_RECOVERY, "--steps", str(self._last_steps[0]), "--limit", ",".join(self._names))
        self._command = self._testbed.start("launch", *flags, *watching)
        try:
            return self._await_run_id()
        except ClusterctlError:
            self._command.kill()
            raise

    def _resume_run(self) -> None:
        self._command.kill()
        self._last_steps.pop(0)
        self._log.continue_with(self._launch("--resume", self._log.run_id))

    def _await_run_id(self) -> str:
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline and not self._command.failed:
            for record in self._testbed.store.all():
                if record.run_id not in self._known:
                    return record.run_id
            time.sleep(_POLL_S)
        raise ClusterctlError(f"no run was started: {self._command.last_line}")

    def _await(self, condition: Callable[[], bool]) -> bool:
        """Whether the condition came true before the run ended or hung."""
        seen, since = -1, time.monotonic()
        while not self._hung:
            self._log.update()
            if condition():
                return True
            if self._testbed.store.read(self._log.run_id).over:
                return False
            if len(self._log.steps) > seen:
                seen, since = len(self._log.steps), time.monotonic()
            self._hung = time.monotonic() - since > HANG_S
            time.sleep(_POLL_S)
        return False

    def _is_due(self, injection: Injection) -> bool:
        if injection.kind == RESUMES:
            return self._testbed.store.read(self._log.run_id).state == "done"
        return self._log.is_training and self._log.last_step >= injection.at_step

    def _is_too_late(self, injection: Injection) -> bool:
        """Whether the run would end before a fault could show."""
        return injection.kind != RESUMES and self._log.last_step > self._last_steps[0] - 2 * _FAULT_STEPS

    def _carry_out_injection(self, injection: Injection) -> None:
        active = self._inject_all(injection)
        if not active.faults:
            return
        try:
            self._await(lambda: self._has_settled(active))
        finally:
            hung, settled_at = self._hung, self._log.clock()
            for revert in active.reverts:
                revert()
        self._await(lambda: bool(self._log.steps_since(settled_at)))
        outcome = self._injection_outcome(active, hung=hung or self._hung)
        self._outcomes.append(outcome)
        self._driver.on_injection(self._plan, outcome)

    def _inject_all(self, injection: Injection) -> _ActiveInjection:
        log = self._log
        active = _ActiveInjection(injection, [], [], log.clock(), log.attempt, log.last_step, len(log.incidents))
        used: set[str] = set()
        for planned in sorted(injection.faults, key=lambda each: each.fault.target is Target.HOST):
            phone = self._choose_phone(planned, used)
            with suppress(ClusterctlError):  # the phone may have failed already
                staged = self._inject(planned, phone)
                active.reverts.append(staged.revert)
                active.faults.append(InjectedFault(planned.fault, phone))
                active.durable_step = staged.durable_step
                used.add(phone)
        return active

    def _choose_phone(self, planned: PlannedFault, used: Iterable[str]) -> str:
        """The planned phone, or another one if it has left the run; empty for the host."""
        if planned.fault.target is Target.HOST:
            return ""
        present = [name for name in self._log.phones[-1] if name not in used]
        if planned.fault.target is Target.HEAD_PHONE:
            return present[0]
        name = self._names[planned.rank]
        return name if name in present else present[planned.rank % len(present)]

    def _inject(self, planned: PlannedFault, phone: str) -> Staged:
        fault, log = planned.fault, self._log
        if fault.target is Target.RUN:
            return SCENARIOS[fault.name](Stage(self._testbed, log, phone, self._await, self._resume_run))
        if fault.target is Target.HOST:
            self._kill_host(fault)
            return Staged()
        return Staged(inject(fault, TargetPhone(self._testbed, phone, log.run_id, log.run_attempt)))

    def _kill_host(self, fault: Fault) -> None:
        self._command.kill()
        self._testbed.kill_supervisor()
        time.sleep(_HOST_AWAY_S[fault.name])
        if fault.name == "host dies":
            self._testbed.start_supervisor()
        else:  # any command that shows runs starts it
            self._testbed.clusterctl("runs")
        if self._plan.attached:
            self._command = self._testbed.start("attach", self._log.run_id, "--json")

    def _has_settled(self, active: _ActiveInjection) -> bool:
        """Whether the next attempt trains; or there was none, and the fault has lasted long enough."""
        log = self._log
        if log.attempt > active.attempt:
            return log.is_training
        lasted_s, steps = log.clock() - active.at, log.last_step - active.step
        if steps >= _FAULT_STEPS and lasted_s > _FAULT_S:
            return True
        return lasted_s > _LONGEST_FAULT_S and not active.must_restart

    def _injection_outcome(self, active: _ActiveInjection, *, hung: bool) -> InjectionOutcome:
        detected_s, phases = self._recovery(active)
        return InjectionOutcome(
            active.injection.kind,
            tuple(active.faults),
            active.at,
            active.step,
            tuple(self._log.incidents[active.incidents :]),
            self._seconds_lost(active),
            detected_s,
            phases,
            restarted=self._log.attempt > active.attempt,
            hung=hung,
            durable_step=active.durable_step,
        )

    def _recovery(self, active: _ActiveInjection) -> tuple[float | None, Mapping[str, float]]:
        """Seconds until the fault was detected, and the seconds of each phase of the recovery."""
        incidents = self._log.incidents[active.incidents :]
        detected_s = next((each.detected_at - active.at for each in incidents if each.detected_at is not None), None)
        return detected_s, next((each.phases for each in incidents if each.phases), {})

    def _seconds_lost(self, active: _ActiveInjection) -> float | None:
        """To the first step of the next attempt; without one, the longest time between steps. None: no step came."""
        host_away = any(injected.fault.target is Target.HOST for injected in active.faults)  # and received nothing
        times = [(step.reported_at if host_away else step.received_at, step.attempt) for step in self._log.steps]
        after = [(when, attempt) for when, attempt in times if when > active.at]
        restarted = [when for when, attempt in after if attempt > active.attempt]
        if restarted:
            return restarted[0] - active.at
        moments = [active.at, *(when for when, _ in after)]
        return max((late - early for early, late in pairwise(moments)), default=None)

    def _clean_up(self) -> None:
        """Leave nothing of the run behind, however it ended."""
        if hasattr(self, "_log") and not self._testbed.store.read(self._log.run_id).over:
            with suppress(ClusterctlError):
                self._testbed.clusterctl("stop", self._log.run_id, "--discard")
        self._command.kill()
        wait_for_sshd(self._testbed.lab_dir, self._names)

    def _outcome(self) -> RunOutcome:
        self._log.update()
        record = self._testbed.store.find(self._log.run_id)
        directory = self._testbed.store.directory(record.run_id)
        return RunOutcome(
            self._plan,
            record.run_id,
            "hung" if self._hung else record.state,
            record.failure.headline if record.failure else "",
            assign_incidents(self._outcomes, self._log.incidents),
            tuple(self._log.phones),
            tuple(self._log.steps),
            _if_last(checkpoints.newest_local(directory)),
        )


def _if_last(checkpoint: Path | None) -> Path | None:
    return checkpoint if checkpoint and checkpoint.name == f"checkpoint-{STEPS:08}.safetensors" else None
