"""Why an attempt failed: the first phone at fault, and what it or mpirun reported.

mpirun names nodes by address, or calls all of them `localhost`; a rank names itself in its error event. The diagnosis
names a phone and its switch port.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.records.causes import Cause, cause_of
from orchestrator.records.events import ErrorEvent
from orchestrator.records.record import Failure
from orchestrator.text import one_line
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import RankSpec, RunSpec

_SIGKILL = "9"
_TAIL_LINES = 10
_MAX_NAMED = 4  # phones in one message

DESCRIPTIONS = {
    Cause.PHONE_UNREACHABLE: "does not answer: cable or power",
    Cause.SSHD_DOWN: "does not answer: sshd is down",
    Cause.AGENT_FAILED: "agent failed",
    Cause.DISK_FULL: "disk is full",
    Cause.LOST_CONTACT: "lost contact: power, cable, or Termux was killed",
    Cause.PHONE_IN_USE: "takes part in another run",
    Cause.LOGIN_FAILED: "the head phone cannot log in",
    Cause.RANK_KILLED: "rank was killed",
    Cause.RANK_CRASHED: "rank crashed",
    Cause.RANK_FAILED: "rank ended with an error",
    Cause.RANK_MISSING: "rank is no longer running",
    Cause.RANK_FROZEN: "rank is frozen: the process exists but makes no progress",
    Cause.OUT_OF_MEMORY: "out of memory",
    Cause.NO_PROGRESS: "no progress, although every rank is alive",
    Cause.STATE_LOST: "no phone holds the state to resume from in memory any more",
    Cause.NOT_FOLLOWED: "the head phone does not report the run",
    Cause.RESTART_FAILED: "the run could not be restarted",
    Cause.TOO_FEW_PHONES: "too few phones are left",
    Cause.UNKNOWN: "mpirun ended without a message",
}

# Patterns in the log of mpirun, the most specific first. A pattern may capture the address or the rank at fault, the
# signal that ended it, and the reason.
_LOG_PATTERNS = (
    (re.compile(r"Remote daemon:.* on node (?P<address>[\d.]+)"), Cause.LOST_CONTACT, ""),
    (
        re.compile(r"ssh: connect to host (?P<address>[\d.]+) port \d+: (?P<reason>.+)"),
        Cause.LOGIN_FAILED,
        "unreachable from the head phone",
    ),
    (
        re.compile(r"(?:termux|\w+)@(?P<address>[\d.]+): Permission denied"),
        Cause.LOGIN_FAILED,
        "does not let the head phone log in",
    ),
    (
        re.compile(r"Connection (?:closed|reset|timed out).* (?P<address>[\d.]+) port \d+"),
        Cause.LOGIN_FAILED,
        "closed the connection to the head phone",
    ),
    (re.compile(r"Host key verification failed"), Cause.LOGIN_FAILED, "a phone does not know another phone's host key"),
    (
        re.compile(r"rank (?P<rank>\d+) with PID \d+ on node \S+ exited on (?P<reason>signal (?P<signal>\d+)[^.]*)"),
        Cause.RANK_CRASHED,
        "",
    ),
    (re.compile(r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]"), Cause.RANK_FAILED, ""),
    (re.compile(r"Peer host: +(?P<address>[\d.]+)"), Cause.RANK_FAILED, "closed its connections to other phones"),
    (re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+)"), Cause.RANK_FAILED, "rank called MPI_Abort"),
)


@dataclass(frozen=True)
class Diagnosis:
    cause: Cause
    rank: RankSpec | None = None  # the one at fault
    detail: str = ""  # replaces the standard description of the cause
    suspects: tuple[str, ...] = ()  # phones, if several may be at fault
    log_tail: tuple[str, ...] = ()
    permanent: bool = False  # the work is at fault, not a phone: another attempt would fail as well
    certain: bool = False  # reported by the phone itself, or a signal that is never sent by accident

    @property
    def message(self) -> str:
        return self.detail or DESCRIPTIONS[self.cause]

    @property
    def headline(self) -> str:
        return f"{name_ranks([self.rank])}: {self.message}" if self.rank else self.message

    @property
    def phones(self) -> tuple[str, ...]:
        """Names of the phones that it blames."""
        return self.suspects or ((self.rank.phone,) if self.rank else ())

    @property
    def phone(self) -> str | None:
        return self.rank.phone if self.rank else None

    def to_failure(self) -> Failure:
        """As the record of a run stores it."""
        failure = Failure(self.message, self.cause, log_tail=self.log_tail, permanent=self.permanent)
        rank = self.rank
        return replace(failure, phone=rank.phone, switch=rank.switch, port=rank.port) if rank else failure


def name_ranks(ranks: Sequence[RankSpec]) -> str:
    named = [f"{rank.phone} ({rank.switch}:{rank.port})" for rank in ranks[:_MAX_NAMED]]
    more = len(ranks) - _MAX_NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def diagnose_failure(spec: RunSpec, error: ErrorEvent | None, mpirun_log: str) -> Diagnosis:
    """In order of trust: the error that a rank reported about itself, the log of mpirun, what a rank reported about
    its neighbors, the last line of the log."""
    tail = _tail(mpirun_log)
    reported = _reported(spec, error, tail) if error is not None else None
    if reported is not None and reported.certain:
        return reported
    for pattern, cause, detail in _LOG_PATTERNS:
        if match := pattern.search(mpirun_log):
            return _from_log(spec, match, Diagnosis(cause, detail=detail, log_tail=tail))
    if reported is not None:
        return reported
    code = error.code if error else ErrorCode.UNKNOWN
    last = tail[-1] if tail else _first_line(error) if error else ""
    return Diagnosis(cause_of(code, Cause.UNKNOWN), detail=last, log_tail=tail)


def _reported(spec: RunSpec, error: ErrorEvent, tail: tuple[str, ...]) -> Diagnosis | None:
    rank = _rank_of(spec, error)
    if rank is None:
        return None
    if error.code is ErrorCode.STATE_LOST:  # every rank reports it; none of them is at fault
        return Diagnosis(Cause.STATE_LOST, detail=_first_line(error), log_tail=tail, certain=True)
    return Diagnosis(
        cause_of(error.code, Cause.RANK_FAILED),
        rank,
        _first_line(error),
        log_tail=tail,
        permanent=error.fault == "work",
        certain=error.code is not ErrorCode.MPI_FAILED,  # MPI fails on the neighbors of a rank that is gone
    )


def _from_log(spec: RunSpec, match: re.Match[str], found: Diagnosis) -> Diagnosis:
    groups = match.groupdict()
    if groups.get("signal") == _SIGKILL:
        found = replace(found, cause=Cause.RANK_KILLED, certain=True)
    if reason := groups.get("reason"):
        found = replace(found, detail=f"{found.message} ({one_line(reason.strip(), 120)})")
    return replace(found, rank=_matched_rank(spec, groups))


def _first_line(error: ErrorEvent) -> str:
    return one_line(next(iter(error.message.splitlines()), "")) or "failed"


def _tail(log: str) -> tuple[str, ...]:
    """The last lines with content: mpirun frames its messages with dashes and blank lines."""
    lines = [line for line in log.splitlines() if line.strip("- \t")]
    return tuple(one_line(line, 200) for line in lines[-_TAIL_LINES:])


def _rank_of(spec: RunSpec, error: ErrorEvent) -> RankSpec | None:
    """By number only if the event names no phone: in another attempt that number belongs to another phone."""
    if error.phone is None:
        return _by_number(spec, error.rank)
    return next((rank for rank in spec.ranks if rank.phone == error.phone), None)


def _matched_rank(spec: RunSpec, groups: dict[str, str | None]) -> RankSpec | None:
    if address := groups.get("address"):
        return next((rank for rank in spec.ranks if rank.address == address), None)
    return _by_number(spec, int(number)) if (number := groups.get("rank")) else None


def _by_number(spec: RunSpec, number: int | None) -> RankSpec | None:
    return next((rank for rank in spec.ranks if rank.rank == number), None)
