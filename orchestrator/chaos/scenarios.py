"""Faults that consist of several steps, with the run going on in between: how they are staged, and reverted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from orchestrator.chaos.faults import Revert, TargetPhone, limit_rate, nothing, restore_rate
from orchestrator.chaos.run_log import RunLog
from orchestrator.chaos.testbed import Testbed
from orchestrator.errors import ClusterctlError
from orchestrator.records import checkpoints
from orchestrator.records.incidents import IncidentKind
from phone_agent.contract import layout

CHECKPOINT_EVERY = 20  # steps: scenarios need checkpoints on this computer
_SLOW = "1mbit"  # so that the run lasts long enough for a phone to rejoin
_SLOW_PHONE = "throttle=0.05"  # its rank starts for half a minute
_STOPPED = frozenset({"recovering", "interrupted"})  # states of a run

# Run by bash on the phone: waits for a rank, for a minute, and kills it while it starts
_KILL_NEXT_RANK = """
for each in $(seq 3000); do
    if pid=$(pgrep -f "^python3 -m phone_agent train $1"); then kill -KILL $pid; exit; fi
    sleep 0.02
done
exit 1
"""


@dataclass(frozen=True)
class Stage:
    """A run, and what a scenario can do to it."""

    testbed: Testbed
    log: RunLog
    phone: str  # at the center of the scenario
    await_condition: Callable[[Callable[[], bool]], bool]  # False: the run ended or hung before
    resume_run: Callable[[], None]  # start a run that continues from the last checkpoint of this one, which is over

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(name for name in self.log.phones[-1] if name != self.phone)

    @property
    def checkpoint_step(self) -> int:
        """Of the newest checkpoint on this computer; 0 if there is none."""
        newest = checkpoints.newest_local(self.testbed.store.directory(self.log.run_id))
        return layout.checkpoint_step(newest) if newest else 0

    def wait_for(self, condition: Callable[[], bool]) -> None:
        if not self.await_condition(condition):
            raise ClusterctlError("the run ended before the fault was complete")

    def wait_for_next_attempt(self, after: int) -> None:
        self.wait_for(lambda: self.log.attempt > after and self.log.is_training)

    def wait_until_noticed(self) -> None:
        self.wait_for(lambda: self.testbed.store.read(self.log.run_id).state in _STOPPED)


@dataclass(frozen=True)
class Staged:
    """What was injected."""

    revert: Revert = nothing
    durable_step: int | None = None  # later steps may be computed again: no phone that takes part holds them


def _return_old_holder(stage: Stage) -> Staged:
    """A phone is cut off. The others go on, write a checkpoint, and lose power; then all are back."""
    others, before, cut_off_at = stage.others, stage.log.attempt, stage.log.last_step
    stage.testbed.set(stage.phone, "link=down")
    try:
        stage.wait_for_next_attempt(before)
        stage.wait_for(lambda: stage.checkpoint_step > cut_off_at)
        with _without_power(stage, others):
            durable_step = stage.checkpoint_step
            stage.wait_until_noticed()
            stage.testbed.set(stage.phone, "link=up")
    finally:
        stage.testbed.set(stage.phone, "link=up")
    return Staged(durable_step=durable_step)


def _exclude_holder(stage: Stage) -> Staged:
    """All phones but one lose power. That one holds the state, but its disk is full."""
    others = stage.others

    def revert() -> None:
        stage.testbed.set(stage.phone, "disk=free")

    stage.wait_for(lambda: stage.checkpoint_step > 0)
    with _without_power(stage, others):
        durable_step = stage.checkpoint_step
        stage.testbed.set(stage.phone, "disk=full")
        try:
            stage.wait_until_noticed()
        except ClusterctlError:
            revert()
            raise
    return Staged(revert, durable_step)


def _fail_rejoin(stage: Stage) -> Staged:
    """A phone reboots. When it is to rejoin, the head phone cannot ask the attempt to yield. Then a rank is killed."""
    before = stage.log.attempt
    with _without_power(stage, (stage.phone,)):
        stage.wait_for_next_attempt(before)
        head, *_, last = stage.others
        target = TargetPhone(stage.testbed, head, stage.log.run_id, stage.log.run_attempt)
        marker = str(layout.attempt_dir(target.run_id, target.attempt) / layout.YIELD_FILE)
        stage.testbed.run_on_phone(head, "ln", "-s", "/nonexistent/file", marker)
        limit_rate(target, _SLOW)
    try:
        stage.wait_for(lambda: any(each.kind == IncidentKind.REJOIN_FAILED for each in stage.log.incidents))
    finally:
        restore_rate(target)
        stage.testbed.run_on_phone(head, "rm", "-f", marker)
    if stage.log.run_attempt == target.attempt:
        TargetPhone(stage.testbed, last, target.run_id, target.attempt).signal("KILL")
        stage.wait_for_next_attempt(stage.log.attempt)
    return Staged()


def _kill_during_resume(stage: Stage) -> Staged:
    """The run is over, and another run resumes from its checkpoint. A rank is killed while that one starts."""
    stage.resume_run()
    stage.testbed.run_on_phone(stage.phone, "bash", "-c", _KILL_NEXT_RANK, "bash", stage.log.run_id)
    return Staged()


def _slow_down_start(stage: Stage) -> Staged:
    """A rank is killed, and its phone is slow when the run restarts. Nothing else is wrong with it."""
    target, before = TargetPhone(stage.testbed, stage.phone, stage.log.run_id, stage.log.run_attempt), stage.log.attempt
    target.signal("KILL")
    stage.testbed.set(stage.phone, _SLOW_PHONE)
    try:
        stage.wait_for_next_attempt(before)
    finally:
        stage.testbed.set(stage.phone, "throttle=1")
    return Staged()


@contextmanager
def _without_power(stage: Stage, phones: Sequence[str]) -> Iterator[None]:
    for phone in phones:
        stage.testbed.power(phone, "off")
    try:
        yield
    finally:
        for phone in phones:
            with suppress(ClusterctlError):
                stage.testbed.power(phone, "on")


RESUMES = "killed during resume"  # the only scenario that begins when a run is over

SCENARIOS: dict[str, Callable[[Stage], Staged]] = {
    "old holder returns": _return_old_holder,
    "holder excluded": _exclude_holder,
    "rejoin fails": _fail_rejoin,
    RESUMES: _kill_during_resume,
    "slow first step": _slow_down_start,
}
