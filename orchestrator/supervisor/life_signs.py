"""Signs of life of the ranks, from one probe to the next, and when a run without any counts as hung. Pure.

A rank that is starting shows life when it enters another phase, or when it computes in a phase in which it does not
wait for others. Once it trains, only events of the run count: a waiting rank uses the CPU as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.records.causes import Cause
from orchestrator.supervisor.diagnosis import Diagnosis, name_ranks
from orchestrator.supervisor.probe import Probe
from phone_agent.contract.schema import RankSpec, RunSpec
from phone_agent.contract.startup import StartupPhase

STALL_S = 300.0  # without a sign of life, although every rank is alive
_PER_RANK_S = 0.2  # for daemons and connections
_SLOWDOWN = 50.0  # of the slowest phone, to what its plan expects of a fast one
MIN_CPU_SHARE = 0.05  # of a core since the last probe; less is a thread that reads sensors, not one that computes
_MAX_STEPS = 20.0  # without an event, as a multiple of the usual step time


@dataclass(frozen=True)
class RankLife:
    phase: StartupPhase | None = None  # None: not started
    cpu_s: float = 0.0
    changed_at: float = 0.0  # of the last sign of life, on the monotonic clock
    probed_at: float = 0.0


@dataclass(frozen=True)
class LifeSigns:
    """Of an attempt. Immutable: `after` returns those that follow from a probe."""

    ranks: Mapping[str, RankLife] = field(default_factory=dict)  # by phone
    expected_s: float = 0.0  # of the phase that takes longest

    def after(self, probes: Sequence[Probe], now: float) -> LifeSigns:
        ranks = {**self.ranks, **{each.phone.name: self._observe(each, now) for each in probes if each.answered}}
        return LifeSigns(ranks, max((each.phase_expected_s for each in probes), default=0.0))

    def _observe(self, probe: Probe, now: float) -> RankLife:
        before = self.ranks.get(probe.phone.name)
        if before is not None and probe.phase is before.phase and not _computes(before, probe, now):
            return replace(before, cpu_s=probe.cpu_s, probed_at=now)
        return RankLife(probe.phase, probe.cpu_s, now, now)

    def silent_phones(self, now: float) -> frozenset[str]:
        """Phones whose ranks were observed before, and show no sign of life in the probe of `now`."""
        return frozenset(phone for phone, life in self.ranks.items() if life.changed_at < now)

    @property
    def newest(self) -> float:
        """When a rank last showed life; 0 if there was no probe."""
        return max((life.changed_at for life in self.ranks.values()), default=0.0)


def _computes(before: RankLife, probe: Probe, now: float) -> bool:
    if probe.phase is None or probe.phase.waits:
        return False
    used_s = probe.cpu_s - before.cpu_s
    return used_s > 0 and used_s >= MIN_CPU_SHARE * (now - before.probed_at)


def stall_limit_s(spec: RunSpec, signs: LifeSigns, usual_step_s: float | None) -> float:
    """How long a run may show no sign of life, from its plan and from its steps so far."""
    if usual_step_s is not None:
        return max(STALL_S, _MAX_STEPS * usual_step_s)
    return STALL_S + _PER_RANK_S * len(spec.ranks) + _SLOWDOWN * signs.expected_s


def diagnose_hang(spec: RunSpec, signs: LifeSigns, silent_s: float) -> Diagnosis:
    """Names the ranks that all others wait for: those in the earliest phase."""
    positions = {rank.phone: _position(signs, rank) for rank in spec.ranks}
    last = [rank for rank in spec.ranks if positions[rank.phone] == min(positions.values())]
    phase = signs.ranks.get(last[0].phone, RankLife()).phase
    its = "its" if len(last) == 1 else "their"
    doing = f"hung before {its} start" if phase is None else f"hung while {phase.description}"
    detail = f"{doing}: no sign of life for {silent_s:.0f} s"
    if len(last) == 1:
        return Diagnosis(Cause.NO_PROGRESS, last[0], detail)
    if len(last) == len(spec.ranks):
        return Diagnosis(Cause.NO_PROGRESS, detail=f"all ranks {detail}")
    return Diagnosis(Cause.NO_PROGRESS, detail=f"{name_ranks(last)}: {detail}", suspects=tuple(r.phone for r in last))


def _position(signs: LifeSigns, rank: RankSpec) -> int:
    phase = signs.ranks.get(rank.phone, RankLife()).phase
    return -1 if phase is None else phase.position
