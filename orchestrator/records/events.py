"""Events of a run, one JSON object per line from a phone that may send anything; and the progress that they report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.text import one_line

FINAL_STATES = frozenset({"done", "failed", "stopped", "lost"})  # lost: the head phone restarted during the run
ATTEMPT_ENDS = FINAL_STATES | {"yielded"}  # it ended so that phones can rejoin
FOLLOWER_EVENTS = frozenset({"end", "heartbeat"})  # written by the process that follows, not by the run
_MAX_LOSSES = 4096
_MAX_WARNINGS = 20
_MAX_RANKS = 4096


@dataclass(frozen=True)
class Event:
    kind: str
    time: float
    phone: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        return as_number(self.fields.get(name))

    def text(self, name: str) -> str:
        return one_line(str(self.fields.get(name, "")))


def parse_event(line: bytes | str) -> Event | None:
    """The event, or None if the line is not one: torn and hostile lines are skipped."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("event"), str):
        return None
    phone = raw.get("phone")
    return Event(
        kind=one_line(raw["event"], 40),
        time=as_number(raw.get("time")) or 0.0,
        phone=one_line(phone, 80) if isinstance(phone, str) else None,
        fields=raw,
    )


def as_number(raw: Any) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        number = float(raw)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Evaluation:
    """On held-out samples: accuracies, 0 to 1, and the mean loss."""

    step: int
    samples: int
    top1: float | None
    top5: float | None
    loss: float | None


@dataclass(frozen=True)
class BatchChange:
    """A new batch size per rank, from `step` on."""

    step: int
    batches: tuple[int, ...]
    reason: str


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
    hottest: tuple[str, float] | None = None
    first_time: float | None = None
    last_time: float | None = None
    seconds: float | None = None  # of the whole run, reported at its end
    test_accuracy: float | None = None  # 0 to 1, reported at the end if held-out samples were staged
    backend: str = ""  # of all phones
    choice: Event | None = None  # autotuned algorithm and wire format of the allreduce, and its predicted time
    exposed_comm_fraction: float | None = None  # of the step time, waiting for gradients; reported at the end
    line_rate_fraction: float | None = None  # of measured link speed, reached by the allreduce; reported at the end
    evaluated: Evaluation | None = None  # the last
    checkpoint: Event | None = None  # the last that the head phone wrote
    losses: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    batch_changes: list[BatchChange] = field(default_factory=list)  # the last ones
    resting: dict[str, str] = field(default_factory=dict)  # phones too hot to compute -> message
    error: Event | None = None
    batches: tuple[int, ...] = ()  # per rank; empty if unchanged since the attempt began
    incidents: list[str] = field(default_factory=list)  # failures and recoveries
    _step_time_s: float = 0.0
    _resumed_from: int | None = None  # the step that it resumed from

    @property
    def over(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def elapsed_s(self) -> float:
        if self.first_time is None or self.last_time is None:
            return 0.0
        return max(0.0, self.last_time - self.first_time)

    @property
    def eta_s(self) -> float | None:
        """Estimated from the mean step time."""
        done = self.step - (self._resumed_from or 0)
        if done <= 0 or not self._step_time_s or self.over:
            return None
        return self._step_time_s / done * max(0, self.steps - self.step)

    def update(self, event: Event) -> None:
        if event.time and event.kind not in FOLLOWER_EVENTS:  # whose time is that of the follower
            self.first_time = event.time if self.first_time is None else self.first_time
            self.last_time = event.time
        handler = {
            "start": self._start,
            "step": self._step,
            "comm_plan": self._choice,
            "evaluate": self._evaluate,
            "checkpoint": self._checkpoint,
            "warning": self._warn,
            "incident": self._incident,
            "rebalance": self._share,
            "pause": self._pause,
            "resume": self._resume,
            "error": self._error,
            "done": self._done,
            "end": self._end,
        }.get(event.kind)
        if handler is not None:
            handler(event)

    def _start(self, event: Event) -> None:
        self.state, self.error, self.batches = "running", None, ()
        self.resting, self.backend = {}, event.text("backend")
        if self._resumed_from is None:
            self._resumed_from = round(event.number("resumed") or 0)

    def _share(self, event: Event) -> None:
        batches = event.fields.get("batches")
        if isinstance(batches, list) and all(type(each) is int and 0 <= each < 1 << 31 for each in batches):
            self.batches = tuple(batches)
            change = BatchChange(round(event.number("step") or 0), self.batches, event.text("reason"))
            self.batch_changes = [*self.batch_changes, change][-_MAX_WARNINGS:]

    def _incident(self, event: Event) -> None:
        self.incidents = [*self.incidents, event.text("message")][-_MAX_WARNINGS:]

    def _step(self, event: Event) -> None:
        self.state = "running"
        self.step = max(self.step, round(event.number("step") or 0))
        self.loss = event.number("loss")
        self.images_per_s = event.number("images_per_s")
        self._time_fractions(event)
        self.hottest = _hottest(event.fields.get("hottest")) or self.hottest
        if self.loss is not None:
            self.losses.append(self.loss)
            if len(self.losses) > _MAX_LOSSES:
                self.losses = self.losses[::2]

    def _time_fractions(self, event: Event) -> None:
        whole = event.number("step_s")
        if whole:
            self._step_time_s += max(0.0, whole)
            self.compute_fraction = _fraction(event.number("compute_s"), whole)
            self.comm_fraction = _fraction(event.number("comm_s"), whole)

    def _choice(self, event: Event) -> None:
        self.choice = event

    def _evaluate(self, event: Event) -> None:
        whole = [round(event.number(name) or 0) for name in ("step", "samples")]
        self.evaluated = Evaluation(whole[0], whole[1], *map(event.number, ("top1", "top5", "loss")))

    def _checkpoint(self, event: Event) -> None:
        self.checkpoint = event

    def _warn(self, event: Event) -> None:
        message = event.text("message")
        prefix = f"{event.phone}: " if event.phone and not event.fields.get("names_phone") else ""
        self.warnings = [*self.warnings, prefix + message][-_MAX_WARNINGS:]

    def _pause(self, event: Event) -> None:
        if event.phone and len(self.resting) < _MAX_RANKS:
            self.resting[event.phone] = event.text("reason")

    def _resume(self, event: Event) -> None:
        self.resting.pop(event.phone or "", None)

    def _error(self, event: Event) -> None:
        self.error = self.error or event

    def _done(self, event: Event) -> None:
        self.loss = event.number("loss") if event.number("loss") is not None else self.loss
        self.images_per_s = event.number("images_per_s") or self.images_per_s
        self.seconds = event.number("seconds")
        self.test_accuracy = event.number("test_accuracy")
        self.exposed_comm_fraction = event.number("exposed_comm_fraction")
        self.line_rate_fraction = event.number("line_rate_fraction")

    def _end(self, event: Event) -> None:
        state = event.text("state")
        self.state = state if state in ATTEMPT_ENDS else "failed"


def _fraction(part: float | None, whole: float) -> float | None:
    return None if part is None else min(1.0, max(0.0, part / whole))


def _hottest(raw: Any) -> tuple[str, float] | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("phone"), str):
        return None
    celsius = as_number(raw.get("temperature_c"))
    return None if celsius is None else (one_line(raw["phone"], 80), celsius)
