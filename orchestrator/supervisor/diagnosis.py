"""Why a run failed: the first phone to blame and what it said.

mpirun names nodes by address, or calls all of them `localhost`; a rank names itself in its error event. The answer
is a phone and its switch port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from orchestrator.records.causes import Cause, cause_of
from orchestrator.records.events import Event
from orchestrator.text import one_line
from phone_agent.contract.errors import ErrorCode, parse_code
from phone_agent.contract.schema import RankSpec, RunSpec

LOST_CONTACT = "lost contact"
_TAIL_LINES = 10
_SIGKILL = 9


@dataclass(frozen=True)
class _Mark:
    """How a line of mpirun's log looks, and what it means."""

    pattern: re.Pattern[str]
    cause: Cause
    meaning: str


def _mark(pattern: str, cause: Cause, meaning: str) -> _Mark:
    return _Mark(re.compile(pattern), cause, meaning)


_MARKS = (  # the most telling first
    _mark(
        r"Remote daemon:.* on node (?P<address>[\d.]+)",
        Cause.LOST_CONTACT,
        f"{LOST_CONTACT}: power, cable or a killed Termux",
    ),
    _mark(
        r"ssh: connect to host (?P<address>[\d.]+) port \d+: (?P<why>.+)",
        Cause.LOGIN_FAILED,
        "the head phone cannot reach it",
    ),
    _mark(
        r"(?:termux|\w+)@(?P<address>[\d.]+): Permission denied",
        Cause.LOGIN_FAILED,
        "the head phone may not log in to it",
    ),
    _mark(
        r"Connection (?:closed|reset|timed out).* (?P<address>[\d.]+) port \d+",
        Cause.LOGIN_FAILED,
        "it hung up on the head phone",
    ),
    _mark(r"Host key verification failed", Cause.LOGIN_FAILED, "a phone does not know another's host key"),
    _mark(
        r"rank (?P<rank>\d+) with PID \d+ on node \S+ exited on (?P<why>signal (?P<signal>\d+)[^.]*)",
        Cause.RANK_CRASHED,
        "its rank was killed",
    ),
    _mark(r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]", Cause.RANK_FAILED, "its rank ended with an error"),
    _mark(r"Peer host: +(?P<address>[\d.]+)", Cause.RANK_FAILED, "it hung up on the others"),
    _mark(r"MPI_ABORT was invoked on rank (?P<rank>\d+)", Cause.RANK_FAILED, "its rank gave up"),
)


@dataclass(frozen=True)
class Diagnosis:
    cause: Cause
    message: str
    phone: RankSpec | None = None
    tail: tuple[str, ...] = ()
    hopeless: bool = False  # it is the work's fault, not a phone's: another attempt would fail as well
    certain: bool = False  # the phone's own words, or a signal that nobody sends by accident
    others: tuple[str, ...] = ()  # phones, where it is about several or about no single one

    @property
    def phones(self) -> tuple[str, ...]:
        """Those that it is about."""
        return self.others or ((self.phone.phone,) if self.phone else ())

    @property
    def headline(self) -> str:
        if self.phone is None:
            return self.message
        return f"{self.phone.phone} ({self.phone.switch}:{self.phone.port}): {self.message}"


def diagnose(spec: RunSpec, error: Event | None, mpirun_log: str) -> Diagnosis:
    """A rank's own words first, but for complaints of others; then what mpirun noticed; then whatever was said last."""
    tail = _tail(mpirun_log)
    told = None
    code = parse_code(error.fields.get("code")) if error else ErrorCode.UNKNOWN
    if error is not None and (rank := _rank_of(spec, error)):
        cause = cause_of(code, Cause.RANK_FAILED)
        told = Diagnosis(cause, _first_line(error), rank, tail, hopeless=error.fields.get("fault") == "work")
        if code is not ErrorCode.MPI_FAILED:  # that is a rank whose neighbour is gone
            return replace(told, certain=True)
    for mark in _MARKS:
        if match := mark.pattern.search(mpirun_log):
            killed = match.groupdict().get("signal") == str(_SIGKILL)
            cause = Cause.RANK_KILLED if killed else mark.cause
            return Diagnosis(cause, _words(match, mark.meaning), _blamed(spec, match), tail, certain=killed)
    if told is not None:
        return told
    unsaid = _first_line(error) if error else "mpirun left no word"
    return Diagnosis(cause_of(code, Cause.UNKNOWN), tail[-1] if tail else unsaid, None, tail)


def _first_line(error: Event) -> str:
    lines = str(error.fields.get("message", "")).splitlines()
    return one_line(lines[0]) if lines else "failed"


def _tail(log: str) -> tuple[str, ...]:
    """The last lines that say something: mpirun frames its messages with dashes and blank lines."""
    lines = [line for line in log.splitlines() if line.strip("- \t")]
    return tuple(one_line(line, 200) for line in lines[-_TAIL_LINES:])


def _rank_of(spec: RunSpec, error: Event) -> RankSpec | None:
    """By its number only where it has no name: in another attempt that number is another phone's."""
    if error.phone is None:
        return _by_rank(spec, error.fields.get("rank"))
    return next((rank for rank in spec.ranks if rank.phone == error.phone), None)


def _blamed(spec: RunSpec, match: re.Match[str]) -> RankSpec | None:
    found = match.groupdict()
    if address := found.get("address"):
        return next((rank for rank in spec.ranks if rank.address == address), None)
    return _by_rank(spec, int(found["rank"])) if found.get("rank") else None


def _by_rank(spec: RunSpec, number: object) -> RankSpec | None:
    return next((rank for rank in spec.ranks if rank.rank == number), None)


def _words(match: re.Match[str], meaning: str) -> str:
    why = match.groupdict().get("why")
    return f"{meaning} ({one_line(why.strip(), 120)})" if why else meaning
