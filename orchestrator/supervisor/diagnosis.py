"""Why a run failed: the first phone to blame and what it said.

mpirun names nodes by address, or calls all of them `localhost`; a rank names itself in its error event. The answer
is a phone and its switch port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from orchestrator.records.events import Event
from orchestrator.text import one_line
from phone_agent.contract.schema import RankSpec, RunSpec

LOST_CONTACT = "lost contact"  # the head phone with another one
_TAIL_LINES = 10
_KILL = "signal 9"

# Marks in mpirun's log, the most telling first: (what the line looks like, what it means)
_MARKS = (
    (re.compile(r"Remote daemon:.* on node (?P<address>[\d.]+)"), f"{LOST_CONTACT}: power, cable or a killed Termux"),
    (re.compile(r"ssh: connect to host (?P<address>[\d.]+) port \d+: (?P<why>.+)"), "the head phone cannot reach it"),
    (re.compile(r"(?:termux|\w+)@(?P<address>[\d.]+): Permission denied"), "the head phone may not log in to it"),
    (
        re.compile(r"Connection (?:closed|reset|timed out).* (?P<address>[\d.]+) port \d+"),
        "it hung up on the head phone",
    ),
    (re.compile(r"Host key verification failed"), "a phone does not know another's host key"),
    (
        re.compile(r"rank (?P<rank>\d+) with PID \d+ on node \S+ exited on (?P<why>signal \d+[^.]*)"),
        "its rank was killed",
    ),
    (re.compile(r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]"), "its rank ended with an error"),
    (re.compile(r"Peer host: +(?P<address>[\d.]+)"), "it hung up on the others"),
    (re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+)"), "its rank gave up"),
)


@dataclass(frozen=True)
class Diagnosis:
    message: str
    phone: RankSpec | None = None
    tail: tuple[str, ...] = ()
    hopeless: bool = False  # it is the work's fault, not a phone's: another attempt would fail as well
    certain: bool = False  # the phone's own words, or a signal that nobody sends by accident

    @property
    def headline(self) -> str:
        if self.phone is None:
            return self.message
        return f"{self.phone.phone} ({self.phone.switch}:{self.phone.port}): {self.message}"


def diagnose(spec: RunSpec, error: Event | None, mpirun_log: str) -> Diagnosis:
    """A rank's own words first, but for complaints of others; then what mpirun noticed; then whatever was said last."""
    tail = _tail(mpirun_log)
    told = None
    if error is not None and (rank := _rank_of(spec, error)):
        told = Diagnosis(_first_line(error), rank, tail, hopeless=error.fields.get("fault") == "work")
        if not _is_about_others(error):
            return replace(told, certain=True)
    for pattern, meaning in _MARKS:
        if match := pattern.search(mpirun_log):
            said = _words(match, meaning)
            return Diagnosis(said, _blamed(spec, match), tail, certain=_KILL in said)
    if told is not None:
        return told
    unsaid = _first_line(error) if error else "mpirun left no word"
    return Diagnosis(tail[-1] if tail else unsaid, None, tail)


def _is_about_others(error: Event) -> bool:
    """MPI's: a rank whose neighbour is gone."""
    return str(error.fields.get("message", "")).startswith("Exception: MPI_")


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
