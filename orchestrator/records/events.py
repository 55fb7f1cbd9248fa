"""What a run says while it goes: one JSON object a line, from a phone that may send anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.text import one_line

FINAL_STATES = frozenset({"done", "failed", "stopped", "lost"})  # lost: the head phone restarted under it
ATTEMPT_ENDS = FINAL_STATES | {"yielded"}  # it made room for another attempt
FOLLOWER_EVENTS = frozenset({"end", "heartbeat"})  # said by the one who follows, not by the run
_KEPT_LOSSES = 4096
_KEPT_WARNINGS = 20
_MOST_RANKS = 4096


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
    """The event, or None for a line that is not one: a torn or a hostile line is skipped, not fatal."""
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
class Evaluated:
    """On held-out samples: parts of them, 0 to 1, and the mean loss."""

    step: int
    samples: int
    top1: float | None
    top5: float | None
    loss: float | None


@dataclass(frozen=True)
class Shares:
    """From `step` on, so many images a step for each rank."""

    step: int
    batches: tuple[int, ...]
    why: str


@dataclass
class Progress:
    """A run as its events have told it so far."""

    steps: int
    step: int = 0
    state: str = "starting"
    loss: float | None = None
    images_per_s: float | None = None
    compute_share: float | None = None  # of the step, 0 to 1
    comm_share: float | None = None
    hottest: tuple[str, float] | None = None
    first_time: float | None = None
    last_time: float | None = None
    seconds: float | None = None  # of the whole run, told at its end
    test_accuracy: float | None = None  # 0 to 1, told at the end where held-out samples were staged
    backend: str = ""  # what computes, of all phones
    choice: Event | None = None  # how gradients travel, and what that should take
    exposed_comm_fraction: float | None = None  # of all steps, what waited for gradients; told at the end
    line_rate_fraction: float | None = None  # the least time the links allow, over what gradients took; told at the end
    evaluated: Evaluated | None = None  # on held-out samples, the last time
    checkpoint: Event | None = None  # the last one written on the head phone
    losses: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    shares: list[Shares] = field(default_factory=list)  # the last changes
    resting: dict[str, str] = field(default_factory=dict)  # phones that are too hot to compute, and how it was told
    error: Event | None = None
    batches: tuple[int, ...] = ()  # of each rank, where they changed since the attempt began
    incidents: list[str] = field(default_factory=list)  # what happened to phones, and what was done about it
    _stepping_s: float = 0.0
    _began: int | None = None  # the step before its first

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
        """By the mean step so far; what came before the first step does not count."""
        done = self.step - (self._began or 0)
        if done <= 0 or not self._stepping_s or self.over:
            return None
        return self._stepping_s / done * max(0, self.steps - self.step)

    def update(self, event: Event) -> None:
        if event.time and event.kind not in FOLLOWER_EVENTS:  # those carry the time of looking
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
        if self._began is None:
            self._began = round(event.number("resumed") or 0)

    def _share(self, event: Event) -> None:
        batches = event.fields.get("batches")
        if isinstance(batches, list) and all(type(each) is int and 0 <= each < 1 << 31 for each in batches):
            self.batches = tuple(batches)
            change = Shares(round(event.number("step") or 0), self.batches, event.text("reason"))
            self.shares = [*self.shares, change][-_KEPT_WARNINGS:]

    def _incident(self, event: Event) -> None:
        self.incidents = [*self.incidents, event.text("message")][-_KEPT_WARNINGS:]

    def _step(self, event: Event) -> None:
        self.state = "running"
        self.step = max(self.step, round(event.number("step") or 0))
        self.loss = event.number("loss")
        self.images_per_s = event.number("images_per_s")
        self._share_of_step(event)
        self.hottest = _hottest(event.fields.get("hottest")) or self.hottest
        if self.loss is not None:
            self.losses.append(self.loss)
            if len(self.losses) > _KEPT_LOSSES:
                self.losses = self.losses[::2]

    def _share_of_step(self, event: Event) -> None:
        whole = event.number("step_s")
        if whole:
            self._stepping_s += max(0.0, whole)
            self.compute_share = _share(event.number("compute_s"), whole)
            self.comm_share = _share(event.number("comm_s"), whole)

    def _choice(self, event: Event) -> None:
        self.choice = event

    def _evaluate(self, event: Event) -> None:
        whole = [round(event.number(name) or 0) for name in ("step", "samples")]
        self.evaluated = Evaluated(whole[0], whole[1], *map(event.number, ("top1", "top5", "loss")))

    def _checkpoint(self, event: Event) -> None:
        self.checkpoint = event

    def _warn(self, event: Event) -> None:
        message = event.text("message")
        who = f"{event.phone}: " if event.phone and not event.fields.get("names_phone") else ""
        self.warnings = [*self.warnings, who + message][-_KEPT_WARNINGS:]

    def _pause(self, event: Event) -> None:
        if event.phone and len(self.resting) < _MOST_RANKS:
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


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None else min(1.0, max(0.0, part / whole))


def _hottest(raw: Any) -> tuple[str, float] | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("phone"), str):
        return None
    celsius = as_number(raw.get("temperature_c"))
    return None if celsius is None else (one_line(raw["phone"], 80), celsius)
