"""Carries a run to its end: watches its attempts, finds out what went wrong, and starts the next one.

The run itself needs nobody: whoever guards it may vanish, and the next one goes on from what is recorded here and held
on the phones.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.data.push import RottenError
from orchestrator.errors import ClusterctlError, PhoneError, UsageError
from orchestrator.fleet import agent
from orchestrator.inventory.model import Phone
from orchestrator.launch.dataset import stored_as
from orchestrator.launch.initial_weights import Start
from orchestrator.launch.launcher import StagingError
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.records import checkpoints
from orchestrator.records.causes import Cause
from orchestrator.records.checkpoint_copies import fetch_told
from orchestrator.records.events import FOLLOWER_EVENTS, Event, Progress, parse_event
from orchestrator.records.incidents import IncidentKind, Incidents
from orchestrator.records.tensorboard import TensorBoard
from orchestrator.supervisor import recovery_timing, stall_diagnosis
from orchestrator.supervisor.checkpoint_puller import Puller
from orchestrator.supervisor.deadline import Deadline
from orchestrator.supervisor.diagnosis import Diagnosis, diagnose
from orchestrator.supervisor.follow import NotFollowedError, follow
from orchestrator.supervisor.probe import Sight, end, look, newest_held
from orchestrator.supervisor.recovery import GiveUp, Memory, choose, hopeless
from orchestrator.supervisor.recovery_timing import Phases
from orchestrator.supervisor.rejoin import Returns
from orchestrator.text import count_of, one_line
from phone_agent.contract import layout
from phone_agent.contract.schema import RunSpec

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection
    from orchestrator.launch.launcher import Launcher
    from orchestrator.records.record import RunRecord, RunStore

SAVE_EVERY_S = 5.0
WORTH_A_RESTART_S = 20.0  # of training left: for less, phones that come back are not taken in
QUORUM_S = 45.0  # to wait for phones when too few are left: a switch may just have restarted
UNHEARD_STEPS = 2  # that may be done, and held, before the head phone tells of them
BETWEEN_LOOKS_S = 3.0
GUARD_S = 180.0  # for another process to start a run again
HUNG_S = 300.0  # without a word from ranks that are all there
_LOG_TAIL_BYTES = 65536

LAST_WORDS = frozenset({"done", "yield"})

OnEvent = Callable[[Progress, Event], None]


class Trouble(Exception):  # noqa: N818 - of a run; nothing here is at fault
    """An attempt that will not end by itself."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.headline)
        self.diagnosis = diagnosis


@contextmanager
def only_guard(store: RunStore, run_id: str) -> Iterator[bool]:
    """Whether no other process of this computer looks after the run: then this one does."""
    with (store.directory(run_id) / "guard.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


class Guard:
    """`progress` and `diagnosis` tell how it ended. One that does not guard only watches: another process does."""

    def __init__(
        self,
        launcher: Launcher,
        record: RunRecord,
        on_event: OnEvent,
        on_break: Callable[[str], None],
        *,
        guards: bool = True,
    ) -> None:
        self._launcher, self.record, self._guards = launcher, record, guards
        self._over = record.over  # then there is nothing to do but to see how it ended
        self._on_event, self._on_break = on_event, on_break
        self._store, self._fleet = launcher.store, launcher.fleet
        self._directory = self._store.directory(record.run_id)
        self._incidents = Incidents(self._store.incidents_file(record.run_id))
        self._memory, self._deadline = Memory(), Deadline()
        self._phases = Phases()
        self._sign_at: float | None = None  # when it was first seen that something is wrong
        self._noticed_at: float | None = None  # the same of the last trouble, by the clock on the wall
        self._saved = self._heard_at = time.monotonic()
        self._recovering = False
        self._stepped_here = False  # in this attempt
        self._absent: tuple[Sight, ...] = ()  # when phones were looked at, since the run was last heard of
        self._returns: Returns | None = None
        self._puller = Puller(lambda event: fetch_told(self._store, record.run_id, event, self._head))
        self.progress = Progress(record.steps)
        self.diagnosis: Diagnosis | None = None

    @property
    def spec(self) -> RunSpec:
        """Of the newest attempt."""
        return self._store.spec(self.record.run_id, self.record.attempt)

    def carry(self) -> None:
        with TensorBoard(self._directory) as self._figures:
            try:
                self._replay()
                trouble = self._follow()
                while self._goes_on(trouble):
                    trouble = self._next(trouble) or self._follow()
            finally:
                if self._guards:
                    self._save()
        self._puller.close()

    # ------------------------------------------------------------------------------------------------- watching

    def _replay(self) -> None:
        for attempt in range(self.record.attempt):
            path = self._store.events_file(self.record.run_id, attempt)
            for line in path.read_bytes().splitlines() if path.exists() else []:
                if event := parse_event(line):
                    self._hear(event)
            for event in self._incidents.after(attempt):
                self._hear(event)

    def _follow(self) -> Diagnosis | None:
        """What went wrong with the attempt; None if nothing did."""
        record = self.record
        self._deadline, self._stepped_here = Deadline(), False
        self.progress.error = None  # an earlier attempt's: this one may end before it says `start`
        self._returns = Returns(self._fleet, record.run_id, self._missing(), self._memory)
        copy = self._store.events_file(record.run_id, record.attempt)
        try:
            for event in follow(record.run_id, copy, self._head, self._broken, record.attempt):
                self._hear(event)
                if event.kind == "heartbeat":
                    self._tick()
        except Trouble as trouble:
            self._noticed()
            return trouble.diagnosis
        except NotFollowedError as error:
            if not record.attempt:
                raise
            return Diagnosis(Cause.NOT_FOLLOWED, error.message)
        if self.progress.state not in {"failed", "lost"}:
            return None
        self._sign_at = time.monotonic()
        found = self._post_mortem()
        self._noticed()
        return found

    def _hear(self, event: Event) -> None:
        self.progress.update(event)
        self._on_event(self.progress, event)
        self._figures.write(event)
        if event.kind not in FOLLOWER_EVENTS:
            self._heard_at, self._sign_at, self._absent = time.monotonic(), None, ()
            self._deadline.alive()
        if event.kind == "step":
            self._step(event)
        if event.kind in LAST_WORDS:
            self._deadline = Deadline()  # no step is due any more, and ranks may go one by one
        if event.kind == "checkpoint" and self._guards and not self._over:
            self._puller.pull(event)
        if self._guards and time.monotonic() - self._saved > SAVE_EVERY_S:
            self._save()

    def _step(self, event: Event) -> None:
        self._deadline.step(event.number("step_s"))
        self._memory.stepped()
        self._stepped_here = True
        if self._recovering:
            self._recovering = False
            self._phases.over(recovery_timing.STEPPING)
            took = self._phases.seconds
            lost = sum(took.values())
            on = count_of(self.record.phones, "phone")
            message = f"going on with step {self.progress.step} on {on}: {lost:.1f} s lost"
            self._tell(IncidentKind.RESUMED, message, lost_s=lost, phases=took)
        self._phases.begin()

    def _noticed(self) -> None:
        """From now on it is known what is wrong."""
        now = time.monotonic()
        self._noticed_at = time.time() - (now - (self._sign_at or now))
        self._phases.over(recovery_timing.NOTICING, self._sign_at)
        self._phases.over(recovery_timing.ASKING)

    def _tick(self) -> None:
        """Twice a second, while the head phone is heard."""
        if not self._guards:
            return
        if self._deadline.passed:
            self._look_for_trouble()
        if self._returns and self._stepped_here and (self.progress.eta_s or 0.0) > WORTH_A_RESTART_S:
            self._take_in(self._returns.back())

    def _look_for_trouble(self) -> None:
        self._sign_at = self._sign_at or time.monotonic()
        sights = self._look()
        found = stall_diagnosis.stalled(self.spec, sights, again=self._deadline.in_vain)
        if found is None and time.monotonic() - self._heard_at > HUNG_S:
            found = Diagnosis(Cause.NO_PROGRESS, f"nothing happened for {HUNG_S:.0f} s, though every rank is there")
        if found is not None:
            raise Trouble(found)
        self._deadline.nothing_found()

    def _look(self) -> tuple[Sight, ...]:
        sights = look(self._fleet, self.record.run_id, self._phones())
        self._absent = tuple(sight for sight in sights if sight.absent)
        return sights

    def _broken(self, error: PhoneError) -> None:
        """The head phone is not heard any more: is it gone, or only out of sight?"""
        self._sign_at = self._sign_at or time.monotonic()
        self._on_break(error.message)
        if not self._guards:
            return
        sights = self._look()
        overdue = self._deadline.passed and newest_held(sights) <= self.progress.step + UNHEARD_STEPS
        if found := stall_diagnosis.head_is_gone(self.spec, sights, overdue=overdue):
            raise Trouble(found)

    def _post_mortem(self) -> Diagnosis:
        found = diagnose(self.spec, self.progress.error, self._mpirun_log())
        if found.phone is None or found.cause is not Cause.RANK_KILLED:
            return found
        victim = self._launcher.cluster.phone(found.phone.phone)
        (sight,) = look(self._fleet, self.record.run_id, [victim], why=True)
        return replace(found, message=f"{found.message}, by {sight.killer}") if sight.killer else found

    def _mpirun_log(self) -> str:
        path = layout.attempt_dir(self.record.run_id, self.record.attempt) / layout.MPIRUN_LOG
        try:
            return self._head().run(["tail", "-c", str(_LOG_TAIL_BYTES), "--", str(path)], timeout=10).stdout
        except PhoneError as error:
            return f"(mpirun.log could not be read: {error.message})"

    # ----------------------------------------------------------------------------------------------- recovering

    def _goes_on(self, trouble: Diagnosis | None) -> bool:
        if self._over or self.diagnosis is not None:
            self.diagnosis = self.diagnosis or trouble
            return False
        if trouble is None and self.progress.state != "yielded":
            return False
        if not self._guards:
            return self._wait_for_the_guard()
        if trouble is None:
            return True
        self._memory.failed(trouble)
        if over := hopeless(self.record, self._memory, trouble):
            self._give_up(over, trouble)
        return over is None

    def _wait_for_the_guard(self) -> bool:
        """Another process of this computer starts the next attempt, or gives up."""
        before, deadline = self.record.attempt, time.monotonic() + GUARD_S
        while time.monotonic() < deadline:
            self.record = self._store.find(self.record.run_id)
            if self.record.over or self.record.attempt != before:
                return not self.record.over
            time.sleep(1.0)
        return False

    def _next(self, trouble: Diagnosis | None) -> Diagnosis | None:
        """Starts the next attempt. None: it was started; or why it was not, or no more will be."""
        if not self._guards:
            return None
        self._recovering = True
        restarts = self.record.restarts + (trouble is not None)
        self.record = replace(self.record, state="recovering", restarts=restarts)
        self._store.save(self.record)
        sights, chosen = self._quorum()
        self._phases.over(recovery_timing.ENDING)
        if trouble is not None:
            trouble = stall_diagnosis.refined(trouble, self.spec, sights)
        if isinstance(chosen, GiveUp):
            return self._give_up(chosen, trouble or Diagnosis(Cause.TOO_FEW_PHONES, chosen.reason))
        self._tell(
            IncidentKind.RESTARTING,
            self._what_is_done(trouble, chosen, sights),
            phone=trouble and trouble.phone and trouble.phone.phone,
            cause=trouble and trouble.cause,
            phones=trouble.phones if trouble else (),
            diagnosis=trouble.headline if trouble else "",
            noticed=trouble and self._noticed_at,
        )
        try:
            self._begin(chosen, held=bool(newest_held(sights)))
        except ClusterctlError as error:
            if isinstance(error, StagingError | RottenError):
                self._memory.refused(error.phones)
            return _not_restarted(error)
        return None

    def _quorum(self) -> tuple[tuple[Sight, ...], tuple[Phone, ...] | GiveUp]:
        """Ends what is left of the last attempt everywhere; waits a little if too few phones answer. Who was just found
        absent is not waited for again."""
        deadline, absent = time.monotonic() + QUORUM_S, self._absent
        while True:
            known = {sight.phone: sight for sight in absent}
            asked = [phone for phone in self._fleet.phones if phone not in known]
            known.update({sight.phone: sight for sight in end(self._fleet, self.record.run_id, asked)})
            sights, absent = tuple(known[phone] for phone in self._fleet.phones), ()
            chosen = choose(self.record, sights, self._memory)
            if not isinstance(chosen, GiveUp) or time.monotonic() > deadline:
                return sights, chosen
            time.sleep(BETWEEN_LOOKS_S)

    def _begin(self, phones: tuple[Phone, ...], *, held: bool) -> None:
        before, choice = self.spec, self.progress.choice
        spec = next_attempt(
            before,
            phones,
            self.record.attempt + 1,
            batches=self.progress.batches,
            choice=choice.fields if choice else None,
        )
        new = not {phone.name for phone in phones} <= {rank.phone for rank in before.ranks}
        if new or not spec.data.replicated or self._memory.doubts(phones):
            spec = self._launcher.bring_data(spec, phones, stored_as(spec.data), whole=spec.data.replicated)
        saved = None if held else self._last_resort()
        spec = replace(spec, resume=layout.RESUME_FILE if saved else "")
        self.record = self._store.begin_attempt(self.record, spec)
        self._launcher.stage(spec, Start.kept(spec, self._directory, saved))
        self._phases.over(recovery_timing.STAGING)
        self._launcher.start(spec)
        self._phases.over(recovery_timing.STARTING)

    def _last_resort(self) -> Path | None:
        """The newest checkpoint, where no phone holds anything in memory: power was cut to all of them."""
        found = checkpoints.find(self._fleet, self.record.run_id, self._directory)
        for damaged in found.damaged if found else ():
            self._tell(IncidentKind.CHECKPOINT_SKIPPED, f"skipped {damaged}: it is damaged")
        if found is None:
            message = "no phone holds the training state and there is no checkpoint: starting from the beginning"
            self._tell(IncidentKind.STATE_LOST, message)
            return None
        message = f"no phone holds the training state: going on from {found.path.name}, step {found.step}"
        self._tell(IncidentKind.STATE_LOST, message, step=found.step)
        return found.path

    def _take_in(self, back: list[Phone]) -> None:
        if not back:
            return
        asked = agent.call(self._head(), "yield", self.record.run_id, "--attempt", str(self.record.attempt))
        if asked.get("requested"):
            names = ", ".join(f"{phone.name} ({phone.where})" for phone in back)
            self._tell(IncidentKind.REJOINING, f"{names} answers again: taken in at the next step's end")
            self._returns = None

    def _what_is_done(self, trouble: Diagnosis | None, phones: tuple[Phone, ...], sights: tuple[Sight, ...]) -> str:
        held = newest_held(sights)
        point = f"from step {held}" if held else "from the start"
        what = f"starting again {point} on {count_of(phones, 'phone')}"
        new = [phone for phone in phones if phone.name in self.record.spares and phone.name not in self.record.phones]
        if new:
            what += f", with {', '.join(f'{phone.name} ({phone.where})' for phone in new)} stepping in"
        return f"{trouble.headline}; {what}" if trouble else what

    def _give_up(self, over: GiveUp, trouble: Diagnosis) -> Diagnosis:
        self.diagnosis = over.after(trouble)
        self.progress.state = "failed"
        state = "interrupted" if over.may_go_on else "failed"
        found = self.diagnosis
        blamed = found.phone.phone if found.phone else None
        self.record = replace(self.record, state=state, error=found.headline, cause=found.cause, blamed=blamed)
        self._store.save(self.record)
        end(self._fleet, self.record.run_id, self._fleet.phones, forget=not over.may_go_on)
        return self.diagnosis

    # --------------------------------------------------------------------------------------------------- helpers

    def _tell(self, kind: IncidentKind, message: str, **fields: object) -> None:
        event = self._incidents.add(kind, message, attempt=self.record.attempt, **fields)
        self.progress.update(event)
        self._on_event(self.progress, event)

    def _head(self) -> PhoneConnection:
        return self._fleet.connection(self._launcher.cluster.phone(self.record.head))

    def _phones(self) -> list[Phone]:
        return [self._launcher.cluster.phone(name) for name in self.record.phones]

    def _missing(self) -> list[Phone]:
        """Whom it was launched with, and does without. Not where spares stepped in."""
        if len(self.record.phones) >= len(self.record.wanted):
            return []
        names = set(self.record.wanted) - set(self.record.phones)
        return [phone for phone in self._fleet.phones if phone.name in names]

    def _save(self) -> None:
        self._saved = time.monotonic()
        self.record = self.record.with_progress(self.progress)
        self._store.save(self.record)


def _not_restarted(error: ClusterctlError) -> Diagnosis:
    """Why the next attempt could not be started."""
    message = error.summary if isinstance(error, StagingError) else one_line(" ".join(error.message.split()))
    remedy = f" ({error.remedy})" if error.remedy else ""
    return Diagnosis(
        error.cause if isinstance(error, StagingError) else Cause.RESTART_FAILED,
        message + remedy,
        hopeless=isinstance(error, UsageError),
        others=error.phones if isinstance(error, StagingError | RottenError) else (),
    )
