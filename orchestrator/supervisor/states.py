"""The vocabulary of the supervisor: its states, the events that it reacts to, and the actions that it asks for.

    Following ──> Diagnosing ──> Recovering ──> Following …
        │              │              │
        └──────────────┴──────────────┴──────> Finished

`transition.py` decides, `supervisor.py` acts. Everything here is immutable data without I/O, so that decisions can be
tested by a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from orchestrator.inventory.model import Phone
from orchestrator.records.checkpoints import CheckpointSearch
from orchestrator.records.incidents import IncidentKind
from orchestrator.records.record import RunRecord
from orchestrator.supervisor.diagnosis import Diagnosis
from orchestrator.supervisor.life_signs import LifeSigns
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.restart_policy import FailureHistory
from orchestrator.supervisor.resume_point import ResumePoint
from phone_agent.contract.schema import RunSpec

# ------------------------------------------------------------------------------------------------------------ states


@dataclass(frozen=True)
class RunContext:
    """What every state knows about the run."""

    record: RunRecord
    spec: RunSpec  # of the newest attempt
    history: FailureHistory = field(default_factory=FailureHistory)
    holders: tuple[str, ...] = ()  # phones that reported to hold the state that the newest attempt resumes from


@dataclass(frozen=True)
class Following:
    """Events of the newest attempt arrive from its head phone, or are about to."""

    context: RunContext
    stepped: bool = False  # in this attempt
    restarted: bool = False  # and the first step since then is still to come
    yielding: bool = False  # the attempt was asked to end so that phones can rejoin
    fault_seen_at: float | None = None  # first sign of a fault since the last event, on the monotonic clock
    unreachable: tuple[Probe, ...] = ()  # phones that a probe since the last event did not reach
    signs: LifeSigns = field(default_factory=LifeSigns)  # of the ranks of this attempt


class Question(Enum):
    """What is being diagnosed."""

    STEP_OVERDUE = auto()
    STREAM_BROKEN = auto()
    ATTEMPT_FAILED = auto()


@dataclass(frozen=True)
class Diagnosing:
    following: Following  # the state to return to if nothing is wrong
    question: Question


@dataclass(frozen=True)
class Recovering:
    """The next attempt is being started."""

    context: RunContext
    failure: Diagnosis | None  # None: the attempt yielded so that phones can rejoin
    quorum_deadline: float  # until then, wait for phones if too few answer
    fault_seen_at: float | None = None
    unreachable: tuple[Probe, ...] = ()  # known already: no need to wait for them again
    waiting: bool = False  # too few phones answer, for longer than until `quorum_deadline`
    incomplete_searches: int = 0  # a phone has a newer checkpoint than was found, and could not be read


@dataclass(frozen=True)
class Finished:
    """The run ended, or is given up."""

    context: RunContext


State = Following | Diagnosing | Recovering | Finished

# ------------------------------------------------------------------------------------------------------------ events


@dataclass(frozen=True)
class RunReported:
    """The run wrote an event other than a step."""


@dataclass(frozen=True)
class StepCompleted:
    step: int


@dataclass(frozen=True)
class StepOverdue:
    """No step for longer than the step timeout."""


@dataclass(frozen=True)
class StreamBroken:
    """The connection to the head phone was lost."""


@dataclass(frozen=True)
class PhonesProbed:
    """The answers to ProbePhones, and what was known when they had arrived."""

    probes: tuple[Probe, ...]
    last_step: int
    last_event_at: float
    step_overdue: bool
    first_probe: bool  # since the last step
    usual_step_s: float | None = None  # None: there was no step in this attempt


@dataclass(frozen=True)
class AttemptEnded:
    run_state: str  # done, failed, stopped, lost or yielded


@dataclass(frozen=True)
class FailureExamined:
    diagnosis: Diagnosis


@dataclass(frozen=True)
class FollowRefused:
    """The agent on the head phone does not know the attempt."""

    diagnosis: Diagnosis


@dataclass(frozen=True)
class PhonesReturned:
    """Lost phones answer again."""

    phones: tuple[Phone, ...]


@dataclass(frozen=True)
class YieldAccepted:
    """The attempt will end after its current step."""

    phones: tuple[Phone, ...]


@dataclass(frozen=True)
class AttemptTerminated:
    """Nothing is left of the failed attempt on the phones that answered."""

    probes: tuple[Probe, ...]  # of all phones of the run, spares included
    checkpoint_step: int = 0  # of the newest checkpoint on this computer, which may be damaged; 0: there is none
    min_phones: int | None = None  # a person has changed it; None: as it was


@dataclass(frozen=True)
class CheckpointsSearched:
    """The answer to FindCheckpoint."""

    terminated: AttemptTerminated
    found: CheckpointSearch


@dataclass(frozen=True)
class AttemptRecorded:
    """The next attempt has its number and its phones. Nothing of it is on a phone yet."""

    record: RunRecord
    spec: RunSpec


@dataclass(frozen=True)
class AttemptStarted:
    """mpirun runs."""


@dataclass(frozen=True)
class StartFailed:
    diagnosis: Diagnosis
    rejected_by: tuple[str, ...] = ()  # phones that did not accept the files, or could not start mpirun


@dataclass(frozen=True)
class ActionFailed:
    """An action could not be carried out: a phone did not answer, or answered with nonsense."""

    action: Action
    message: str


SupervisorEvent = (
    RunReported
    | StepCompleted
    | StepOverdue
    | StreamBroken
    | PhonesProbed
    | AttemptEnded
    | FailureExamined
    | FollowRefused
    | PhonesReturned
    | YieldAccepted
    | AttemptTerminated
    | CheckpointsSearched
    | AttemptRecorded
    | AttemptStarted
    | StartFailed
    | ActionFailed
)

# ----------------------------------------------------------------------------------------------------------- actions


@dataclass(frozen=True)
class ProbePhones:
    """Answered by PhonesProbed."""


@dataclass(frozen=True)
class BackOff:
    """Double the step timeout: a probe found nothing wrong."""


@dataclass(frozen=True)
class ExamineFailure:
    """Read the log of mpirun. Answered by FailureExamined."""


@dataclass(frozen=True)
class EndDetection:
    """For the timing of the recovery: the cause is known now, its first sign was seen at `fault_seen_at`."""

    fault_seen_at: float | None


@dataclass(frozen=True)
class SaveRecord:
    record: RunRecord


@dataclass(frozen=True)
class TerminateAttempt:
    """On all phones but those known to be unreachable, after a pause. Answered by AttemptTerminated."""

    unreachable: tuple[Probe, ...] = ()
    pause_s: float = 0.0


@dataclass(frozen=True)
class RecordIncident:
    kind: IncidentKind
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    fault_seen_at: float | None = None


@dataclass(frozen=True)
class FindCheckpoint:
    """Verify and fetch the newest checkpoint of the run: one may be newer than all that phones hold in memory.
    Answered by CheckpointsSearched."""

    terminated: AttemptTerminated


@dataclass(frozen=True)
class StartAttempt:
    """Answered by AttemptRecorded, then by AttemptStarted or StartFailed."""

    phones: tuple[Phone, ...]
    resume: ResumePoint
    verify_data: bool


@dataclass(frozen=True)
class ReportRecovery:
    """The first step after a recovery is done."""

    step: int


@dataclass(frozen=True)
class RequestYield:
    """Ask the attempt to end after its current step. Answered by YieldAccepted, unless it is over already."""

    phones: tuple[Phone, ...]


@dataclass(frozen=True)
class ReleasePhones:
    """End every process of the run on all phones, and free the memory of its checkpoints. It stays where it holds the
    only copy of work that may be of use."""

    discard_state: bool = False


Action = (
    ProbePhones
    | BackOff
    | ExamineFailure
    | EndDetection
    | SaveRecord
    | TerminateAttempt
    | RecordIncident
    | FindCheckpoint
    | StartAttempt
    | ReportRecovery
    | RequestYield
    | ReleasePhones
)
