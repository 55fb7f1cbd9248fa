"""Whether a run whose attempt failed is restarted, and on which phones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.inventory.model import Phone
from orchestrator.records.causes import Cause
from orchestrator.records.record import RunRecord
from orchestrator.supervisor.diagnosis import Diagnosis
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.resume_point import ResumePoint, holders_of_newest, newest_of
from orchestrator.text import count_of

MAX_ATTEMPTS_WITHOUT_STEP = 4  # in a row
MAX_FAILURES_WITHOUT_STEP = 2  # of one phone in a row: then it is left out
REJOIN_PROBE_S = 20.0  # between two probes of a lost phone; doubles with every loss of it
LONGEST_REJOIN_PROBE_S = 600.0
STARTS_AT_ONCE = 2  # that may fail before the run waits; as many as a phone may fail before it is left out
START_RETRY_S = 15.0  # before the next start; doubles with every failed one
LONGEST_START_RETRY_S = 600.0


@dataclass(frozen=True)
class FailureHistory:
    """The failures of a run so far. Immutable: each method returns the history after what happened."""

    attempts_without_step: int = 0
    recent: Mapping[str, int] = field(default_factory=dict)  # failures of each phone since the last step
    losses: Mapping[str, int] = field(default_factory=dict)  # failures of each phone in all
    rejoins: Mapping[str, int] = field(default_factory=dict)  # how often the run yielded for each phone
    without_state: frozenset[str] = frozenset()  # phones that did not hold the state that they reported
    failed_starts: int = 0  # in a row: no rank of these attempts ran

    def after_step(self) -> FailureHistory:
        return replace(self, attempts_without_step=0, recent={}, failed_starts=0, without_state=frozenset())

    def after_failure(self, diagnosis: Diagnosis) -> FailureHistory:
        failed = (diagnosis.phone,) if diagnosis.phone else ()
        return replace(
            self,
            attempts_without_step=self.attempts_without_step + 1,
            recent=_counted(self.recent, failed),
            losses=_counted(self.losses, failed),
            failed_starts=0,
        )

    def after_failed_start(self, names: Iterable[str]) -> FailureHistory:
        """An attempt could not be started, because of these phones if there are any."""
        return replace(self, recent=_counted(self.recent, names), failed_starts=self.failed_starts + 1)

    def after_yield(self, names: Iterable[str]) -> FailureHistory:
        """An attempt ends so that these phones can rejoin."""
        return replace(self, rejoins=_counted(self.rejoins, names))

    def after_lost_state(self, names: Iterable[str]) -> FailureHistory:
        """These phones did not hold the state that they reported. Until the next step, their memory does not count."""
        return replace(self, without_state=self.without_state.union(names))

    def confirmed_state(self, probe: Probe) -> Probe:
        return replace(probe, in_memory=()) if probe.phone.name in self.without_state else probe

    def while_waiting(self) -> FailureHistory:
        """Phones that were left out get another chance: without them there are too few."""
        return replace(self, recent={})

    def should_verify_data(self, phones: Iterable[Phone]) -> bool:
        """Whether the datasets on these phones may be damaged: one of them failed, or the end of the last attempt was
        not observed here."""
        return not self.losses or any(phone.name in self.recent for phone in phones)

    def rejoin_probe_s(self, name: str) -> float:
        """Pause before a lost phone is probed. Also grows if the phone is not able to rejoin when the run yields."""
        doublings = max(self.losses.get(name, 0) - 1, self.rejoins.get(name, 0), 0)
        return _doubled(REJOIN_PROBE_S, doublings, LONGEST_REJOIN_PROBE_S)

    @property
    def start_retry_s(self) -> float:
        """Pause before the next start: whatever prevents it may last, on a phone as well as on this computer."""
        doublings = max(0, self.failed_starts - STARTS_AT_ONCE - 1)
        return _doubled(START_RETRY_S, doublings, LONGEST_START_RETRY_S)


def _doubled(pause_s: float, doublings: int, longest_s: float) -> float:
    return min(longest_s, pause_s * 2.0 ** min(doublings, 10))


def _counted(counts: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    return {**counts, **{name: counts.get(name, 0) + 1 for name in names}}


@dataclass(frozen=True)
class NoRestart:
    """The decision not to restart a run."""

    reason: str

    def explain(self, failure: Diagnosis | None) -> Diagnosis:
        """The failure that led to the decision, with the reason added to its message."""
        if failure is None:
            return Diagnosis(Cause.TOO_FEW_PHONES, detail=self.reason)
        if not self.reason:
            return failure
        return replace(failure, detail=f"{failure.message}; {self.reason}")


def restart_limit_reached(record: RunRecord, history: FailureHistory, failure: Diagnosis) -> NoRestart | None:
    """Why there is no next attempt, whatever phones are available."""
    if failure.permanent:
        return NoRestart("")
    if record.restarts >= record.max_restarts:
        often = f"already restarted {count_of(record.restarts, 'time')} (--max-restarts {record.max_restarts})"
        return NoRestart(often if record.max_restarts else "")
    if history.attempts_without_step >= MAX_ATTEMPTS_WITHOUT_STEP:
        return NoRestart(f"no step was completed in {MAX_ATTEMPTS_WITHOUT_STEP} attempts")
    return None


def select_phones(record: RunRecord, probes: Sequence[Probe], history: FailureHistory) -> tuple[Phone, ...] | NoRestart:
    """The phones that the run was launched with where they are able, spares in place of the others; in ring order.

    A spare that took part keeps its place if otherwise the newest state in memory would be lost.
    """
    unable = unable_phones(probes, history)
    able = [probe.phone for probe in probes if probe.phone.name not in unable]
    own = [phone for phone in able if phone.name in record.requested]
    spares = [phone for phone in able if phone.name in record.spares]
    selected = [*own, *spares[: max(0, len(record.requested) - len(own))]]
    holders = [probe.phone for probe in holders_of_newest([each for each in probes if each.phone in able])]
    if holders and not set(holders).intersection(selected):
        selected = [*selected[: len(record.requested) - 1], holders[0]]
    if len(selected) < record.min_phones:
        left = (
            f"{len(selected)} of {count_of(len(record.requested), 'phone')} left, at least {record.min_phones} needed"
        )
        return NoRestart(f"{left} (--min-phones): waiting for phones")
    return tuple(probe.phone for probe in probes if probe.phone in selected)


def unable_phones(probes: Sequence[Probe], history: FailureHistory) -> dict[str, str]:
    """Phones that cannot take part in an attempt, by name, and why."""
    failed = [name for name, count in history.recent.items() if count >= MAX_FAILURES_WITHOUT_STEP]
    left_out = {probe.phone.name: "failed repeatedly" for probe in probes if probe.phone.name in failed}
    return left_out | {probe.phone.name: probe.problem_detail for probe in probes if probe.problem}


def without_implausible_state(probe: Probe, record: RunRecord) -> Probe:
    """A phone cannot hold steps that the run does not have, or of attempts that were never started."""
    held = [each for each in probe.in_memory if each.step <= record.steps and each.attempt <= record.attempt]
    checkpoint_step = probe.checkpoint_step if probe.checkpoint_step <= record.steps else 0
    return replace(probe, in_memory=tuple(held), checkpoint_step=checkpoint_step)


def lost_phones(record: RunRecord, phones: Iterable[Phone]) -> tuple[Phone, ...]:
    """Phones that the run was launched with and now lacks. None where spares have replaced them."""
    if len(record.phones) >= len(record.requested):
        return ()
    names = set(record.requested) - set(record.phones)
    return tuple(phone for phone in phones if phone.name in names)


def describe_restart(record: RunRecord, failure: Diagnosis | None, phones: Sequence[Phone], resume: ResumePoint) -> str:
    restart = f"restarting from {resume} on {count_of(phones, 'phone')}"
    added = [phone for phone in phones if phone.name in record.spares and phone.name not in record.phones]
    if added:
        restart += f", with {'spare' if len(added) == 1 else 'spares'} {name_phones(added)}"
    return f"{failure.headline}; {restart}" if failure else restart


def describe_lost_state(probes: Sequence[Probe], phones: Sequence[Phone], resume: ResumePoint) -> str | None:
    """Why the attempt resumes from an older state than the last attempt ended with; None if it does not."""
    left_out = [probe for probe in holders_of_newest(probes) if probe.phone not in phones]
    newest = max((committed.step for probe in left_out for committed in probe.in_memory), default=0)
    if newest > resume.step:
        reasons = ", ".join(f"{name_phones([probe.phone])}: {probe.problem_detail or 'failed'}" for probe in left_out)
        return f"phones that hold step {newest} in memory cannot take part ({reasons}): resuming from {resume}"
    if resume.in_memory:
        return None
    held = newest_of([probe.in_memory for probe in probes])
    state = f"a state newer than step {held.step}" if held else "the training state"
    return f"no phone has {state} in memory: resuming from {resume}"


def name_phones(phones: Iterable[Phone]) -> str:
    return ", ".join(f"{phone.name} ({phone.where})" for phone in phones)
