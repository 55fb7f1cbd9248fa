"""Events of a run, one JSON object per line from a phone that may send anything; and the progress that they report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from orchestrator.records.causes import Cause
from phone_agent.contract.choices import ALGORITHMS, WIRES
from phone_agent.contract.decode import (
    Clamp,
    Count,
    DecodeError,
    Lines,
    Name,
    OneOf,
    Or,
    Range,
    Seconds,
    Size,
    Step,
    decode,
    parse_json,
)
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import CheckpointInfo

FINAL_STATES = frozenset({"done", "failed", "stopped", "lost"})  # lost: the head phone restarted during the run
ATTEMPT_ENDS = FINAL_STATES | {"yielded"}  # it ended so that phones can rejoin
FOLLOWER_EVENTS = frozenset({"end", "heartbeat"})  # written by the process that follows, not by the run
MAX_LOSS: Final = 1e9  # a larger one has diverged
MAX_EVENT_BYTES: Final = 1 << 16
LAST_TIME: Final = 4102444800.0  # the year 2100: a later time is a wrong clock
_MAX_LOSSES = 4096
_MAX_WARNINGS = 20
_MAX_RANKS = 4096

Loss = Annotated[float | None, Clamp(-MAX_LOSS, MAX_LOSS), Or(None)]
Rate = Annotated[float | None, Range(0, 1e9), Or(None)]
Duration = Annotated[Seconds | None, Or(None)]
Ratio = Annotated[float | None, Range(0, 100), Or(None)]  # the link probe is short: an allreduce may be faster
Accuracy = Annotated[float | None, Range(0, 1), Or(None)]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Any event. Those that this computer evaluates have a class of their own."""

    kind: Annotated[str, Size(40)]
    time: Annotated[float, Range(0, LAST_TIME), Or(0.0)] = 0.0  # epoch seconds; 0: unknown
    phone: Annotated[Name | None, Or(None)] = None


@dataclass(frozen=True, kw_only=True)
class StartEvent(Event):
    kind: str = "start"
    resumed: Annotated[Step, Or(0)] = 0
    backend: Annotated[str, Or("")] = ""


@dataclass(frozen=True, kw_only=True)
class Hottest:
    phone: Name
    temperature_c: Annotated[float, Range(-60, 250)]


@dataclass(frozen=True, kw_only=True)
class StepEvent(Event):
    kind: str = "step"
    step: Step
    loss: Loss = None
    learning_rate: Rate = None
    images_per_s: Rate = None
    step_s: Duration = None
    compute_s: Duration = None
    comm_s: Duration = None
    hottest: Annotated[Hottest | None, Or(None)] = None


@dataclass(frozen=True, kw_only=True)
class CommPlanEvent(Event):
    """The algorithm and wire format of the allreduce, chosen by measurement, and its predicted time."""

    kind: str = "comm_plan"
    algorithm: Annotated[str, OneOf(ALGORITHMS)]
    wire: Annotated[str, OneOf(WIRES)]
    bucket_bytes: Annotated[int, Range(0, (1 << 31) - 1)]
    group: Count = 0  # maximum phones per group; 0: one group per switch
    predicted_s: Duration = None
    limit_s: Duration = None  # the shortest time that the links allow


@dataclass(frozen=True, kw_only=True)
class EvaluateEvent(Event):
    """On held-out samples: accuracies, 0 to 1, and the mean loss."""

    kind: str = "evaluate"
    step: Step
    samples: Count
    top1: Accuracy = None
    top5: Accuracy = None
    loss: Loss = None


@dataclass(frozen=True, kw_only=True)
class CheckpointEvent(CheckpointInfo, Event):
    kind: str = "checkpoint"


@dataclass(frozen=True, kw_only=True)
class WarningEvent(Event):
    kind: str = "warning"
    message: str
    names_phone: Annotated[bool, Or(False)] = False  # noqa: FBT003 (the value itself)


@dataclass(frozen=True, kw_only=True)
class RebalanceEvent(Event):
    """A new batch size per rank, from `step` on."""

    kind: str = "rebalance"
    step: Annotated[Step, Or(0)] = 0
    batches: tuple[Annotated[int, Range(0, (1 << 31) - 1)], ...]
    reason: Annotated[str, Or("")] = ""


@dataclass(frozen=True, kw_only=True)
class PauseEvent(Event):
    kind: str = "pause"
    reason: Annotated[str, Or("")] = ""


@dataclass(frozen=True, kw_only=True)
class ResumeEvent(Event):
    kind: str = "resume"
    reason: Annotated[str, Or("")] = ""


@dataclass(frozen=True, kw_only=True)
class ErrorEvent(Event):
    kind: str = "error"
    message: Annotated[str, Lines(), Size(4000), Or("")] = ""
    code: Annotated[ErrorCode, Or(ErrorCode.UNKNOWN)] = ErrorCode.UNKNOWN
    fault: Annotated[str, Or("")] = ""  # phone: others may succeed; work: they would fail as well
    rank: Annotated[Count | None, Or(None)] = None


@dataclass(frozen=True, kw_only=True)
class DoneEvent(Event):
    kind: str = "done"
    loss: Loss = None
    images_per_s: Rate = None
    seconds: Duration = None
    test_accuracy: Accuracy = None
    exposed_comm_fraction: Ratio = None  # of the step time, spent waiting for gradients
    line_rate_fraction: Ratio = None  # of measured link speed, reached by the allreduce


@dataclass(frozen=True, kw_only=True)
class EndEvent(Event):
    kind: str = "end"
    state: Annotated[str, OneOf(tuple(sorted(ATTEMPT_ENDS))), Or("failed")] = "failed"


@dataclass(frozen=True, kw_only=True)
class IncidentEvent(Event):
    """A failure of the run or a recovery, recorded by this computer. Phones cannot send one."""

    kind: str = "incident"
    message: str
    incident: str = ""  # IncidentKind
    attempt: int = 0
    cause: Annotated[Cause | None, Or(Cause.UNKNOWN)] = None
    phones: tuple[str, ...] = ()
    diagnosis: str = ""
    detected_at: float | None = None
    phases: dict[str, float] = field(default_factory=dict)


_FROM_PHONES: Final[dict[str, type[Event]]] = {
    "start": StartEvent,
    "step": StepEvent,
    "comm_plan": CommPlanEvent,
    "evaluate": EvaluateEvent,
    "checkpoint": CheckpointEvent,
    "warning": WarningEvent,
    "rebalance": RebalanceEvent,
    "pause": PauseEvent,
    "resume": ResumeEvent,
    "error": ErrorEvent,
    "done": DoneEvent,
    "end": EndEvent,
}


def parse_event(line: bytes | str) -> Event | None:
    """The event, or None if the line is not one, or an implausible one: torn and hostile lines are skipped."""
    event = _parse(line)
    return None if isinstance(event, IncidentEvent) else event


def parse_incident(line: bytes | str) -> IncidentEvent | None:
    event = _parse(line)
    return event if isinstance(event, IncidentEvent) else None


def _parse(line: bytes | str) -> Event | None:
    try:
        raw = parse_json(line, MAX_EVENT_BYTES)
        if not isinstance(raw, dict):
            return None
        name = raw.get("event")
        kind = IncidentEvent if name == "incident" else _FROM_PHONES.get(str(name), Event)
        return decode(kind, {**raw, "kind": name})
    except DecodeError:
        return None


@dataclass
class Progress:
    """The state of a run according to its events so far."""

    steps: int
    step: int = 0
    state: str = "starting"
    loss: float | None = None
    images_per_s: float | None = None
    compute_fraction: float | None = None  # of the step time, 0 to 1
    comm_fraction: float | None = None
    hottest: Hottest | None = None
    first_time: float | None = None
    last_time: float | None = None
    seconds: float | None = None  # of the whole run, reported at its end
    test_accuracy: float | None = None  # 0 to 1, reported at the end if held-out samples were staged
    backend: str = ""  # of all phones
    choice: CommPlanEvent | None = None
    exposed_comm_fraction: float | None = None  # of the step time, waiting for gradients; reported at the end
    line_rate_fraction: float | None = None  # of measured link speed, reached by the allreduce; reported at the end
    evaluated: EvaluateEvent | None = None  # the last
    checkpoint: CheckpointEvent | None = None  # the last that the head phone wrote
    losses: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    batch_changes: list[RebalanceEvent] = field(default_factory=list)  # the last ones
    resting: dict[str, str] = field(default_factory=dict)  # phones too hot to compute -> message
    error: ErrorEvent | None = None
    batches: tuple[int, ...] = ()  # per rank; empty if unchanged since the attempt began
    incidents: list[str] = field(default_factory=list)  # failures and recoveries
    _step_time_s: float = 0.0
    _timed_steps: int = 0

    @property
    def over(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def elapsed_s(self) -> float:
        if self.first_time is None or self.last_time is None:
            return 0.0
        return max(0.0, self.last_time - self.first_time)

    @property
    def mean_step_s(self) -> float | None:
        return self._step_time_s / self._timed_steps if self._step_time_s else None

    @property
    def eta_s(self) -> float | None:
        """Estimated from the mean step time."""
        if self.mean_step_s is None or self.over:
            return None
        return self.mean_step_s * max(0, self.steps - self.step)

    def is_plausible(self, event: Event) -> bool:
        """Events of steps that the run does not have are lies."""
        if isinstance(event, StartEvent):
            return event.resumed <= self.steps
        return not isinstance(event, StepEvent | EvaluateEvent | CheckpointEvent) or event.step <= self.steps

    def update(self, event: Event) -> None:  # noqa: C901, PLR0912 (a table)
        if not self.is_plausible(event):
            return
        if event.time and event.kind not in FOLLOWER_EVENTS:  # whose time is that of the follower
            self.first_time = event.time if self.first_time is None else self.first_time
            self.last_time = event.time
        match event:
            case StartEvent():
                self._start(event)
            case StepEvent():
                self._step(event)
            case CommPlanEvent():
                self.choice = event
            case EvaluateEvent():
                self.evaluated = event
            case CheckpointEvent():
                self.checkpoint = event
            case WarningEvent():
                self._warn(event)
            case IncidentEvent():
                self.incidents = [*self.incidents, event.message][-_MAX_WARNINGS:]
            case RebalanceEvent():
                self.batches = event.batches
                self.batch_changes = [*self.batch_changes, event][-_MAX_WARNINGS:]
            case PauseEvent() if event.phone and len(self.resting) < _MAX_RANKS:
                self.resting[event.phone] = event.reason
            case ResumeEvent():
                self.resting.pop(event.phone or "", None)
            case ErrorEvent():
                self.error = self.error or event
            case DoneEvent():
                self._done(event)
            case EndEvent():
                self.state = event.state

    def _start(self, event: StartEvent) -> None:
        self.state, self.error, self.batches = "running", None, ()
        self.resting, self.backend, self.step = {}, event.backend, event.resumed

    def _step(self, event: StepEvent) -> None:
        self.state = "running"
        self.step = event.step
        self.loss, self.images_per_s = event.loss, event.images_per_s
        self.hottest = event.hottest or self.hottest
        if event.step_s:
            self._step_time_s += event.step_s
            self._timed_steps += 1
            self.compute_fraction = _fraction(event.compute_s, event.step_s)
            self.comm_fraction = _fraction(event.comm_s, event.step_s)
        if self.loss is not None:
            self.losses.append(self.loss)
            if len(self.losses) > _MAX_LOSSES:
                self.losses = self.losses[::2]

    def _warn(self, event: WarningEvent) -> None:
        prefix = f"{event.phone}: " if event.phone and not event.names_phone else ""
        self.warnings = [*self.warnings, prefix + event.message][-_MAX_WARNINGS:]

    def _done(self, event: DoneEvent) -> None:
        self.loss = self.loss if event.loss is None else event.loss
        self.images_per_s = event.images_per_s or self.images_per_s
        self.seconds, self.test_accuracy = event.seconds, event.test_accuracy
        self.exposed_comm_fraction, self.line_rate_fraction = event.exposed_comm_fraction, event.line_rate_fraction


def _fraction(part: float | None, whole: float) -> float | None:
    return None if part is None else min(1.0, part / whole)
