"""What phones say of their part of a run when somebody asks them directly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError
from orchestrator.fleet import agent
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.inventory.model import Phone
from orchestrator.records.causes import Cause
from orchestrator.records.events import as_number
from orchestrator.supervisor.identity import holder
from orchestrator.text import one_line
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet

LOOK_S = 6.0
END_S = 15.0
LOGIN = frozenset({Phase.BANNER, Phase.KEX, Phase.AUTH, Phase.HOSTKEY})  # who fails in these is on the network
FULL_MB = 20.0  # of disk: a phone with less cannot even write its log


class LeasedError(ClusterctlError):
    """Two computers must not start one run again at the same time, nor one stop it while the other does."""


@dataclass(frozen=True)
class Sight:
    """One phone. `silent`: why it does not answer, None if it does."""

    phone: Phone
    silent: str | None = None
    refused: bool = False  # it is there, but its sshd is not
    fails: bool = False  # it is there, and its agent does not do as asked
    ranks: int = 0
    frozen: bool = False
    moves: bool = False
    held: tuple[tuple[int, int], ...] = ()  # attempt and step
    disk_mb: float | None = None
    memory_mb: float | None = None
    killer: str | None = None
    code: ErrorCode | None = None  # of why it does not answer

    @property
    def absent(self) -> bool:
        """It is not on the network, as far as can be told."""
        return self.silent is not None and not self.refused and not self.fails

    @property
    def cause(self) -> Cause | None:
        """Why it cannot take part; None if it can."""
        if self.fails:
            return Cause.AGENT_FAILED
        if self.silent is not None:
            return Cause.SSHD_DOWN if self.refused else Cause.PHONE_UNREACHABLE
        return Cause.DISK_FULL if self.full else None

    @property
    def unfit(self) -> str | None:
        """The same, for a person."""
        if self.fails:
            return f"its agent fails: {self.silent}"
        if self.silent is not None:
            return "does not answer: its sshd is down" if self.refused else "does not answer: cable or power"
        return f"its disk is full ({self.disk_mb:.0f} MB free)" if self.full else None

    @property
    def full(self) -> bool:
        return self.disk_mb is not None and self.disk_mb < FULL_MB


def look(fleet: Fleet, run_id: str, phones: Iterable[Phone], *, why: bool = False) -> tuple[Sight, ...]:
    flags = ("--logcat",) if why else ()
    asked = fleet.map(
        lambda phone: agent.call(phone, "probe", run_id, *flags, timeout=LOOK_S), phones, probe_first=True
    )
    return _sights(asked)


def end(fleet: Fleet, run_id: str, phones: Iterable[Phone], *, forget: bool = False) -> tuple[Sight, ...]:
    """Ends what is left of it on each; what they hold in memory stays, unless it is to be forgotten.

    Raises LeasedError when another computer looks after the run.
    """
    flags = ("--holder", holder(), *(("--discard-state",) if forget else ()))
    asked = fleet.map(
        lambda phone: agent.call(phone, "cleanup", run_id, *flags, timeout=END_S), phones, probe_first=True
    )
    sights = _sights(asked)
    if leased := next((sight.silent for sight in sights if sight.code is ErrorCode.LEASE_HELD), None):
        raise LeasedError(leased, remedy=f"clusterctl attach {run_id}")
    return sights


def _sights(outcomes: Outcomes[Any]) -> tuple[Sight, ...]:
    return tuple(map(_sight, outcomes))


def _sight(outcome: Outcome[Any]) -> Sight:
    if outcome.status is not Status.OK or not isinstance(outcome.value, dict):
        error = one_line(outcome.error or "it makes no sense", 160)
        code = outcome.code or ErrorCode.BAD_ANSWER
        refused = outcome.phase in LOGIN or code is ErrorCode.CONNECTION_REFUSED
        fails = outcome.status is not Status.UNREACHABLE and not refused
        return Sight(outcome.phone, error, refused, fails, code=code)
    told = outcome.value
    ranks = [each for each in told.get("ranks") or [] if isinstance(each, dict)]
    killer = told.get("killed_by")
    return Sight(
        outcome.phone,
        ranks=len(ranks),
        frozen=any(each.get("state") in {"T", "t", "D"} and not each.get("progressing") for each in ranks),
        moves=any(each.get("progressing") is True for each in ranks),
        held=_held(told.get("held_steps")),
        disk_mb=as_number(told.get("disk_mb")),
        memory_mb=as_number(told.get("memory_mb")),
        killer=one_line(killer, 80) if isinstance(killer, str) else None,
    )


def _held(raw: Any) -> tuple[tuple[int, int], ...]:
    pairs = raw if isinstance(raw, list) else []
    return tuple(
        (pair[0], pair[1])
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and all(type(each) is int and each >= 0 for each in pair)
    )


def newest_held(sights: Sequence[Sight]) -> int:
    """The step that phones would go on from, more or less; 0 if nobody holds any."""
    return max((mark for sight in sights for mark in sight.held), default=(0, 0))[1]
