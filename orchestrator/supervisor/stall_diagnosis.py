"""Find out from the answers of its phones why a run has stopped reporting. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from orchestrator.records.causes import Cause
from orchestrator.supervisor.diagnosis import Diagnosis, name_ranks
from orchestrator.supervisor.probe import Probe
from phone_agent.contract.schema import RankSpec, RunSpec


def diagnose_stall(
    spec: RunSpec,
    probes: Sequence[Probe],
    *,
    first_probe: bool = True,
    starting: bool = False,
    quiet: Collection[str] = (),
) -> Diagnosis | None:
    """Why a run has stopped reporting, or None if every rank is alive and may be making progress.

    Rules in order of certainty: unreachable phone, missing rank, full disk on the head phone, frozen rank. A phone
    keeps training without its sshd, so a stopped sshd is no cause. `starting`: there was no step yet. `quiet`: phones
    whose ranks show no sign of life since the last probe.
    """
    by_phone = {probe.phone.name: probe for probe in probes}

    # A slow agent may fail one probe, so its failure counts only from the second probe on. While ranks start, the
    # phones are busy, and an agent may be slow every time.
    unreachable = [
        rank
        for rank in spec.ranks
        if by_phone[rank.phone].unreachable
        or (by_phone[rank.phone].agent_failed and not first_probe and not (starting and by_phone[rank.phone].timed_out))
    ]
    if unreachable:
        return _diagnose_phone(unreachable[0], by_phone[unreachable[0].phone])

    # Several missing ranks at the first probe usually mean that mpirun is shutting down and will report why.
    missing = [rank for rank in spec.ranks if by_phone[rank.phone].rank_ended]
    if missing and (len(missing) == 1 or not first_probe):
        return Diagnosis(Cause.RANK_MISSING, missing[0])

    # The head phone trains on with a full disk, but it can no longer write the events that report progress.
    head = spec.ranks[0]
    if by_phone[head.phone].disk_full:
        return replace(_diagnose_phone(head, by_phone[head.phone]), certain=True)

    # If no rank is progressing, all may be waiting for the same slow disk.
    # A rank that starts may wait for its disk, or be stopped for a moment where Android throttles the phone.
    frozen = [rank for rank in spec.ranks if by_phone[rank.phone].frozen and not (starting and rank.phone not in quiet)]
    if frozen and any(probe.progressing for probe in probes):
        return Diagnosis(Cause.RANK_FROZEN, frozen[0], certain=True)
    return None


def diagnose_lost_head(spec: RunSpec, probes: Sequence[Probe], *, step_overdue: bool = False) -> Diagnosis | None:
    """Whether the head phone is gone, or None if only this computer has lost its connection to it.

    `step_overdue`: the others hold no step that the head phone would not have reported.
    """
    head, *others = spec.ranks
    by_phone = {probe.phone.name: probe for probe in probes}
    answering = [by_phone[rank.phone] for rank in others if by_phone[rank.phone].answered]
    training = any(probe.ranks for probe in answering) and not step_overdue
    if by_phone[head.phone].answered or not answering or training:
        return None
    return _diagnose_phone(head, by_phone[head.phone])


def refine_diagnosis(diagnosis: Diagnosis, spec: RunSpec, probes: Sequence[Probe]) -> Diagnosis:
    """Correct a diagnosis by what the phones answer afterwards.

    A phone that no longer answers is the cause, rather than the one that complained about it. A certain diagnosis
    yields only to an unreachable phone: a stopped sshd or a full disk may be older, or have the same cause.
    """
    problems = {
        probe.phone.name: probe for probe in probes if probe.problem and (probe.unreachable or not diagnosis.certain)
    }
    lost = [rank for rank in spec.ranks if rank.phone in problems]
    if diagnosis.rank is not None and diagnosis.rank.phone in problems:
        return _blame(diagnosis, diagnosis.rank, problems[diagnosis.rank.phone])
    if len(lost) == 1:
        return _blame(diagnosis, lost[0], problems[lost[0].phone])
    if lost:
        detail = f"{name_ranks(lost)} do not answer: cable, switch or power"
        return replace(
            diagnosis,
            cause=Cause.PHONE_UNREACHABLE,
            rank=None,
            suspects=tuple(rank.phone for rank in lost),
            detail=detail,
        )
    if diagnosis.rank is not None and diagnosis.cause is Cause.LOST_CONTACT:
        # Both phones answer now, so the loose cable may as well be that of the head phone.
        both = (spec.ranks[0], diagnosis.rank)
        detail = f"{name_ranks(both)} lost contact with each other: a loose cable, or a killed daemon"
        return replace(diagnosis, rank=None, suspects=tuple(rank.phone for rank in both), detail=detail)
    return diagnosis


def _diagnose_phone(rank: RankSpec, probe: Probe) -> Diagnosis:
    return Diagnosis(probe.problem or Cause.PHONE_UNREACHABLE, rank, probe.problem_detail)


def _blame(diagnosis: Diagnosis, rank: RankSpec, probe: Probe) -> Diagnosis:
    return replace(diagnosis, cause=probe.problem or diagnosis.cause, rank=rank, detail=probe.problem_detail)
