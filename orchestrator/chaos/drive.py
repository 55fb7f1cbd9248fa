"""Carries out a plan: launches runs on the lab, strikes while they train, mends, and writes down what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orchestrator.chaos.catalogue import Effect, Target
from orchestrator.chaos.evaluate import attributed
from orchestrator.chaos.faults import Mend, Victim, injure
from orchestrator.chaos.outcome import BlowStory, Hit, RunStory
from orchestrator.chaos.plan import Blow, RunPlan, Strike
from orchestrator.chaos.run_log import Chronicle
from orchestrator.chaos.testbed import Ground
from orchestrator.errors import ClusterctlError
from orchestrator.lab.status import await_sshd
from orchestrator.records import checkpoints

STEPS = 240
HUNG_S = 120.0  # without a step, or an end, a run counts as hung
_WORK = (
    *("--model", "lenet", "--data", "synthetic", "--global-batch", "48", "--steps", str(STEPS)),
    # Slowly, and for labels that are never quite met: there is something to learn until the last step.
    *("--lr", "0.002", "--label-smoothing", "0.1"),
    # As it would be chosen; but the same in every run, so that results can be compared to the bit.
    *("--algorithm", "ring", "--wire", "fp32", "--bucket", "1MB", "--balance", "off"),
)
_SURVIVAL = ("--min-phones", "2", "--max-restarts", "100")
_HELD_STEPS, _HELD_S, _LONGEST_HELD_S = 8, 1.5, 8.0  # how long a fault lasts that the run can live with
_HOST_AWAY_S = 2.0
_LOOK_S = 0.05

OnBlow = Callable[[RunPlan, BlowStory], None]


@dataclass
class _Struck:
    """A blow that has fallen."""

    blow: Blow
    hits: list[Hit]
    mends: list[Mend]
    at: float
    attempt: int
    step: int
    incidents: int  # that were known before

    @property
    def must_stop(self) -> bool:
        return any(strike.fault.effect is Effect.STOPS for strike in self.blow.strikes)


@dataclass
class Driver:
    ground: Ground
    seed: int  # of the training: first weights and order of samples
    on_blow: OnBlow = lambda _plan, _story: None

    def undisturbed(self, phones: int) -> RunStory:
        return self.run(RunPlan(0, phones, ()))

    def run(self, plan: RunPlan) -> RunStory:
        return _Run(self, plan).carry_out()


class _Run:
    def __init__(self, driver: Driver, plan: RunPlan) -> None:
        self._driver, self._ground, self._plan = driver, driver.ground, plan
        self._names = tuple(phone.name for phone in self._ground.phones(plan.phones))
        self._blows: list[BlowStory] = []
        self._hung = False

    def carry_out(self) -> RunStory:
        self._known = {record.run_id for record in self._ground.store.all()}
        flags = ("--seed", str(self._driver.seed), "--limit", ",".join(self._names))
        self._watching = self._ground.begin("launch", *_WORK, *_SURVIVAL, *flags, "--json")
        try:
            self._chronicle = Chronicle(self._ground.store, self._begun())
            for blow in self._plan.blows:
                if not self._await(lambda blow=blow: self._is_time_for(blow)) or self._is_too_late:  # type: ignore[misc]
                    break
                self._suffer(blow)
            self._await(lambda: False)
        finally:
            self._clear_up()
        return self._story()

    def _begun(self) -> str:
        """The id of the run."""
        deadline = time.monotonic() + HUNG_S
        while time.monotonic() < deadline and not self._watching.over:
            for record in self._ground.store.all():
                if record.run_id not in self._known:
                    return record.run_id
            time.sleep(_LOOK_S)
        raise ClusterctlError(f"no run began: {self._watching.last_words}")

    def _await(self, condition: Callable[[], bool]) -> bool:
        """Whether it came true before the run ended, or hung."""
        news, since = -1, time.monotonic()
        while not self._hung:
            self._chronicle.listen()
            if condition():
                return True
            if self._watching.over:
                return False
            if len(self._chronicle.steps) > news:
                news, since = len(self._chronicle.steps), time.monotonic()
            self._hung = time.monotonic() - since > HUNG_S
            time.sleep(_LOOK_S)
        return False

    def _is_time_for(self, blow: Blow) -> bool:
        return self._chronicle.is_training and self._chronicle.last_step >= blow.at_step

    @property
    def _is_too_late(self) -> bool:
        """The run would be over before anything came of a blow."""
        return self._chronicle.last_step > STEPS - 2 * _HELD_STEPS

    # ------------------------------------------------------------------------------------------------- one blow

    def _suffer(self, blow: Blow) -> None:
        struck = self._strike(blow)
        if not struck.hits:
            return
        try:
            self._await(lambda: self._has_settled(struck))
        finally:
            hung, settled = self._hung, self._chronicle.clock()
            for mend in struck.mends:
                mend()
        self._await(lambda: bool(self._chronicle.since(settled)))
        story = self._told(struck, hung=hung or self._hung)
        self._blows.append(story)
        self._driver.on_blow(self._plan, story)

    def _strike(self, blow: Blow) -> _Struck:
        chronicle = self._chronicle
        struck = _Struck(
            blow, [], [], chronicle.clock(), chronicle.attempt, chronicle.last_step, len(chronicle.incidents)
        )
        taken: set[str] = set()
        for strike in sorted(blow.strikes, key=lambda each: each.fault.target is Target.HOST):
            phone = self._whom(strike, taken)
            with suppress(ClusterctlError):  # who is gone already cannot be struck
                struck.mends.append(self._injure(strike, phone))
                struck.hits.append(Hit(strike.fault, phone))
                taken.add(phone)
        return struck

    def _whom(self, strike: Strike, taken: Iterable[str]) -> str:
        if strike.fault.target is Target.HOST:
            return ""
        present = [name for name in self._chronicle.phones[-1] if name not in taken]
        if strike.fault.target is Target.HEAD:
            return present[0]
        planned = self._names[strike.seat]
        return planned if planned in present else present[strike.seat % len(present)]

    def _injure(self, strike: Strike, phone: str) -> Mend:
        if strike.fault.target is not Target.HOST:
            return injure(strike.fault, Victim(self._ground, phone, self._chronicle.run_id, self._chronicle.attempt))
        self._watching.kill()
        time.sleep(_HOST_AWAY_S)
        self._watching = self._ground.begin("attach", self._chronicle.run_id, "--json")
        return lambda: None

    def _has_settled(self, struck: _Struck) -> bool:
        """The next attempt trains; or there was none, and the fault has lasted long enough."""
        chronicle = self._chronicle
        if chronicle.attempt > struck.attempt:
            return chronicle.is_training
        lasted, steps = chronicle.clock() - struck.at, chronicle.last_step - struck.step
        if steps >= _HELD_STEPS and lasted > _HELD_S:
            return True
        return lasted > _LONGEST_HELD_S and not struck.must_stop

    def _told(self, struck: _Struck, *, hung: bool) -> BlowStory:
        return BlowStory(
            struck.blow.name,
            tuple(struck.hits),
            struck.at,
            struck.step,
            tuple(self._chronicle.incidents[struck.incidents :]),
            self._seconds_lost(struck),
            *self._course(struck),
            restarted=self._chronicle.attempt > struck.attempt,
            hung=hung,
        )

    def _course(self, struck: _Struck) -> tuple[float | None, Mapping[str, float]]:
        """Seconds until it was noticed; and where the time went."""
        said = self._chronicle.incidents[struck.incidents :]
        noticed = next((each.noticed - struck.at for each in said if each.noticed is not None), None)
        return noticed, next((each.phases for each in said if each.phases), {})

    def _seconds_lost(self, struck: _Struck) -> float | None:
        """To the first step of the next attempt; without one, the longest wait for a step. None: there was no step."""
        by_phone = any(hit.fault.target is Target.HOST for hit in struck.hits)  # nobody was there to hear it
        moments = [(step.told if by_phone else step.heard, step.attempt) for step in self._chronicle.steps]
        after = [(when, attempt) for when, attempt in moments if when > struck.at]
        again = [when for when, attempt in after if attempt > struck.attempt]
        if again:
            return again[0] - struck.at
        times = [struck.at, *(when for when, _ in after)]
        return max((late - soon for soon, late in pairwise(times)), default=None)

    # ------------------------------------------------------------------------------------------------ afterwards

    def _clear_up(self) -> None:
        """Nothing of a run stays behind, whatever became of it."""
        if not self._watching.over:
            self._watching.kill()
            if hasattr(self, "_chronicle"):
                with suppress(ClusterctlError):
                    self._ground.call("stop", self._chronicle.run_id)
        await_sshd(self._ground.lab_dir, self._names)

    def _story(self) -> RunStory:
        self._chronicle.listen()
        record = self._ground.store.find(self._chronicle.run_id)
        directory = self._ground.store.directory(record.run_id)
        return RunStory(
            self._plan,
            record.run_id,
            "hung" if self._hung else record.state,
            record.error or "",
            attributed(self._blows, self._chronicle.incidents),
            tuple(self._chronicle.phones),
            tuple(self._chronicle.steps),
            self._kept(checkpoints.newest_local(directory)),
        )

    def _kept(self, checkpoint: Path | None) -> Path | None:
        return checkpoint if checkpoint and checkpoint.name == f"checkpoint-{STEPS:08}.safetensors" else None
