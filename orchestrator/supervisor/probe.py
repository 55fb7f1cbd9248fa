"""Ask phones directly how their part of a run is doing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError
from orchestrator.fleet import agent
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.inventory.model import Phone
from orchestrator.records.causes import Cause
from orchestrator.supervisor.diagnosis import DESCRIPTIONS
from orchestrator.supervisor.identity import host_identity
from orchestrator.text import one_line
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import RunProbe
from phone_agent.contract.schema import RankSpec, RunSpec
from phone_agent.contract.startup import StartupPhase

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet

PROBE_S = 6.0
TERMINATE_S = 15.0
_PER_PHONE_S = 0.1  # this computer is slower with many phones at the same time
_MAX_AT_ONCE = 64
MIN_DISK_MB = 20.0  # a phone with less cannot even write its log
_LOGIN_PHASES = frozenset({Phase.BANNER, Phase.KEX, Phase.AUTH, Phase.HOSTKEY})  # the phone is on the network
_STUCK = frozenset({"T", "t", "D"})  # process states: stopped, traced, in uninterruptible sleep


class LeaseHeldError(ClusterctlError):
    """Another computer supervises the run: two must not restart it, or one stop it while the other restarts it."""


@dataclass(frozen=True)
class Probe:
    """What one phone answered, or why it did not."""

    phone: Phone
    error: str | None = None  # None: it answered
    sshd_down: bool = False  # the phone is on the network, its sshd is not
    agent_failed: bool = False  # the phone is on the network, its agent fails
    in_use: bool = False  # by another run; the phone was not asked
    code: ErrorCode | None = None  # of the error
    ranks: int = 0  # processes
    frozen: bool = False
    progressing: bool = False  # a rank uses the CPU
    cpu_s: float = 0.0  # of the rank since it started
    phase: StartupPhase | None = None  # of the rank; None: it has not started
    phase_expected_s: float = 0.0  # roughly, on a fast phone
    in_memory: tuple[CommittedStep, ...] = ()
    checkpoint_step: int = 0  # of the newest checkpoint file, which may be damaged; 0: there is none
    disk_mb: float | None = None
    memory_mb: float | None = None
    killed_by: str | None = None

    @property
    def answered(self) -> bool:
        return self.error is None

    @property
    def unreachable(self) -> bool:
        """As far as this computer can see, the phone is not on the network."""
        return not self.answered and not self.sshd_down and not self.agent_failed

    @property
    def timed_out(self) -> bool:
        return self.code is ErrorCode.TIMED_OUT

    @property
    def rank_ended(self) -> bool:
        """The rank has started, and does not run any more."""
        return self.answered and self.phase is not None and not self.ranks

    @property
    def disk_full(self) -> bool:
        return self.disk_mb is not None and self.disk_mb < MIN_DISK_MB

    @property
    def problem(self) -> Cause | None:
        """Why the phone cannot take part in an attempt; None if it can."""
        if self.in_use:
            return Cause.PHONE_IN_USE
        if self.agent_failed:
            return Cause.AGENT_FAILED
        if not self.answered:
            return Cause.SSHD_DOWN if self.sshd_down else Cause.PHONE_UNREACHABLE
        return Cause.DISK_FULL if self.disk_full else None

    @property
    def problem_detail(self) -> str:
        """The problem for a person, with what was measured; empty if there is none."""
        if self.problem is None:
            return ""
        description = DESCRIPTIONS[self.problem]
        if self.problem is Cause.AGENT_FAILED:
            return f"{description}: {self.error}"
        return f"{description} ({self.disk_mb:.0f} MB free)" if self.problem is Cause.DISK_FULL else description


def probe_phones(fleet: Fleet, run_id: str, phones: Iterable[Phone], *, find_killer: bool = False) -> tuple[Probe, ...]:
    """`find_killer`: also search the Android log for what killed the rank, which takes longer."""
    phones = tuple(phones)
    flags, limit_s = ("--logcat",) if find_killer else (), _limit_s(PROBE_S, phones)
    outcomes = fleet.map(
        lambda phone: agent.call(phone, RunProbe, "probe", run_id, *flags, timeout=limit_s), phones, probe_first=True
    )
    return _probes(outcomes)


def probe_ranks(fleet: Fleet, spec: RunSpec) -> tuple[Probe, ...]:
    """A phone that was removed from the inventory counts as unreachable."""
    by_name = {phone.name: phone for phone in fleet.phones}
    known = [by_name[rank.phone] for rank in spec.ranks if rank.phone in by_name]
    removed = tuple(_removed(rank) for rank in spec.ranks if rank.phone not in by_name)
    return probe_phones(fleet, spec.run_id, known) + removed


def _removed(rank: RankSpec) -> Probe:
    phone = Phone(rank.phone, rank.switch, rank.port, IPv4Address(rank.address))
    return Probe(phone, error="not in the inventory any more")


def terminate(fleet: Fleet, run_id: str, phones: Iterable[Phone], *, free_memory: bool = False) -> tuple[Probe, ...]:
    """End every process of the run on these phones. Checkpoints in memory stay, unless `free_memory`.

    Raises LeaseHeldError when another computer supervises the run.
    """
    phones = tuple(phones)
    limit_s = _limit_s(TERMINATE_S, phones)
    flags = ("--holder", host_identity(), *(("--discard-state",) if free_memory else ()))
    outcomes = fleet.map(
        lambda phone: agent.call(phone, RunProbe, "cleanup", run_id, *flags, timeout=limit_s),
        phones,
        probe_first=True,
    )
    probes = _probes(outcomes)
    for probe in probes:
        if probe.code is ErrorCode.LEASE_HELD:
            raise LeaseHeldError(probe.error or "", remedy=f"clusterctl attach {run_id}")
    return probes


def _limit_s(one_phone_s: float, phones: Sequence[Phone]) -> float:
    return one_phone_s + _PER_PHONE_S * min(len(phones), _MAX_AT_ONCE)


def _probes(outcomes: Outcomes[RunProbe]) -> tuple[Probe, ...]:
    return tuple(map(_read_outcome, outcomes))


def _read_outcome(outcome: Outcome[RunProbe]) -> Probe:
    reply = outcome.value
    if reply is None:
        return _read_failure(outcome)
    return Probe(
        outcome.phone,
        ranks=len(reply.ranks),
        frozen=any(rank.state in _STUCK and not rank.progressing for rank in reply.ranks),
        progressing=any(rank.progressing for rank in reply.ranks),
        cpu_s=sum(rank.cpu_s for rank in reply.ranks),
        phase=reply.phase,
        phase_expected_s=reply.phase_expected_s,
        in_memory=tuple(CommittedStep(*held) for held in reply.held_steps),
        checkpoint_step=reply.checkpoint_step,
        disk_mb=reply.disk_mb,
        memory_mb=reply.memory_mb,
        killed_by=reply.killed_by,
    )


def _read_failure(outcome: Outcome[RunProbe]) -> Probe:
    code = outcome.code or ErrorCode.BAD_ANSWER
    sshd_down = outcome.phase in _LOGIN_PHASES or code is ErrorCode.CONNECTION_REFUSED
    return Probe(
        outcome.phone,
        error=one_line(outcome.error or "no reply", 160),
        sshd_down=sshd_down,
        agent_failed=outcome.status is not Status.UNREACHABLE and not sshd_down,
        code=code,
    )
