"""Traces of a run: when every thread of every rank did what, on one clock; as a Chrome trace, and per step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from orchestrator.errors import PhoneError
from orchestrator.logs.collect import collect_from_phone
from orchestrator.logs.unpack import DEFAULT_LIMITS
from orchestrator.text import one_line
from phone_agent.contract import layout
from phone_agent.contract.decode import Count, DecodeError, OneOf, Range, Step, decode_json
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

COMPUTING = ("data", "forward", "backward", "wait")
COMMUNICATING = ("reduce", "update", "exchange")
TRANSFERRING = ("send", "receive", "add")  # inside a reduce
THREADS = {"compute": COMPUTING, "communication": COMMUNICATING, "line": TRANSFERRING}
_THREAD_OF = {kind: (number, name) for number, (name, kinds) in enumerate(THREADS.items()) for kind in kinds}
_Clock = Annotated[float, Range(-1e10, 1e10)]
_SPAN: Final = cast(
    "type[tuple[str, int, float, float]]", tuple[Annotated[str, OneOf(tuple(_THREAD_OF))], Step, _Clock, _Clock]
)
MAX_SPANS = 500_000  # per phone
_MAX_LINE = 1024
_WARM_UP = 3  # steps: connections are made, memory is touched first, buckets are ordered


@dataclass(frozen=True)
class Span:
    kind: str
    step: int
    started: float  # seconds on the clock of rank 0
    ended: float


@dataclass
class RankTrace:
    rank: int
    phone: str
    clock_error_s: float  # upper bound, relative to the clock of rank 0
    spans: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class _Header:
    rank: Count
    offset_s: _Clock = 0.0
    offset_error_s: _Clock = 0.0


@dataclass(frozen=True)
class StepBreakdown:
    """Mean times of the steps of one rank."""

    rank: int
    phone: str
    steps: int
    step_s: float
    compute_s: float
    communication_s: float
    exposed: float  # fraction of the step time that compute waits for communication


def fetch_trace(connection: PhoneConnection, run_id: str, attempt: int = 0) -> RankTrace:
    name = layout.TIMELINE_FILE.replace(".", f".{attempt}.") if attempt else layout.TIMELINE_FILE
    with tempfile.TemporaryDirectory() as scratch:
        collect_from_phone(connection, run_id, Path(scratch), DEFAULT_LIMITS)
        path = Path(scratch) / connection.phone.name / name
        if not path.is_file():
            raise PhoneError(
                f"has no timeline of {run_id}: it is written when the run ends",
                code=ErrorCode.DATA_MISSING,
                remedy=f"clusterctl attach {run_id}",
            )
        return read_trace(path, connection.phone.name)


def read_trace(path: Path, phone: str) -> RankTrace:
    """Lines that are not spans are skipped: the file comes from a phone."""
    with path.open("rb") as file:
        lines = iter(lambda: file.readline(_MAX_LINE), b"")
        try:
            header = decode_json(_Header, next(lines, b""))
        except DecodeError as error:
            message = f"sent a timeline with an invalid first line: {error}"
            raise PhoneError(message, code=ErrorCode.BAD_ANSWER, remedy="clusterctl provision") from None
        trace = RankTrace(header.rank, phone, header.offset_error_s)
        spans = filter(None, (_parse_span(line, header.offset_s) for line in lines))
        trace.spans += islice(spans, MAX_SPANS)
    return trace


def _parse_span(line: bytes, offset: float) -> Span | None:
    try:
        kind, step, started, ended = decode_json(_SPAN, line)
    except DecodeError:
        return None
    return Span(kind, step, started - offset, ended - offset) if ended >= started else None


def to_chrome_trace(traces: Sequence[RankTrace]) -> dict[str, Any]:
    """For chrome://tracing or ui.perfetto.dev: one process per rank, with its threads."""
    start = min((span.started for trace in traces for span in trace.spans), default=0.0)
    events = [event for trace in traces for event in (*_metadata(trace), *_events(trace, start))]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _metadata(trace: RankTrace) -> Iterator[dict[str, Any]]:
    common = {"ph": "M", "pid": trace.rank}
    yield {**common, "name": "process_name", "args": {"name": f"rank {trace.rank}: {one_line(trace.phone)}"}}
    for number, name in enumerate(THREADS):
        yield {**common, "name": "thread_name", "tid": number, "args": {"name": name}}


def _events(trace: RankTrace, start: float) -> Iterator[dict[str, Any]]:
    for span in trace.spans:
        yield {
            "name": span.kind,
            "ph": "X",
            "pid": trace.rank,
            "tid": _THREAD_OF[span.kind][0],
            "ts": round((span.started - start) * 1e6, 1),
            "dur": round((span.ended - span.started) * 1e6, 1),
            "args": {"step": span.step},
        }


def break_down_steps(trace: RankTrace) -> StepBreakdown | None:
    """Of the steps after the warm-up, if there are any. None without spans."""
    last = max((span.step for span in trace.spans), default=0)
    counted = [span for span in trace.spans if span.step > _WARM_UP or last <= _WARM_UP]
    steps = len({span.step for span in counted if span.kind in COMPUTING})
    if not steps:
        return None
    waited = _seconds(counted, ("wait",))
    step_s = _seconds(counted, COMPUTING)
    return StepBreakdown(
        rank=trace.rank,
        phone=trace.phone,
        steps=steps,
        step_s=step_s / steps,
        compute_s=(step_s - waited) / steps,
        communication_s=_seconds(counted, COMMUNICATING) / steps,
        exposed=waited / step_s if step_s else 0.0,
    )


def _seconds(spans: Iterable[Span], kinds: Sequence[str]) -> float:
    return sum(span.ended - span.started for span in spans if span.kind in kinds)
