"""What is wrong with a run from which nothing is heard, by what its phones say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.records.causes import Cause
from orchestrator.supervisor.diagnosis import LOST_CONTACT, Diagnosis
from orchestrator.supervisor.probe import Sight
from phone_agent.contract.schema import RankSpec, RunSpec

_ON_EITHER_SIDE = "a loose cable, or a daemon that was killed"


def stalled(spec: RunSpec, sights: Sequence[Sight], *, again: bool = False) -> Diagnosis | None:
    """None: every rank is there, and works. A phone whose sshd alone is gone trains on; so does a head phone whose disk
    is full, but it cannot tell of it any more.

    `again`: it is not the first look. Where several ranks are gone at the first, mpirun is just ending them, and will
    say why; and an agent may be slow once.
    """
    seen = {sight.phone.name: sight for sight in sights}
    absent = [rank for rank in spec.ranks if seen[rank.phone].absent or (again and seen[rank.phone].fails)]
    if absent:
        return _of(seen[absent[0].phone], absent[0])
    gone = [rank for rank in spec.ranks if seen[rank.phone].silent is None and not seen[rank.phone].ranks]
    if len(gone) == 1 or (gone and again):
        return Diagnosis(Cause.RANK_MISSING, "its rank is gone", gone[0])
    if seen[spec.ranks[0].phone].full:
        return replace(_of(seen[spec.ranks[0].phone], spec.ranks[0]), certain=True)
    frozen = [rank for rank in spec.ranks if seen[rank.phone].frozen]
    if frozen and any(sight.moves for sight in sights):
        stuck = "its rank is frozen: it is there, but gets nowhere"
        return Diagnosis(Cause.RANK_FROZEN, stuck, frozen[0], certain=True)
    return None


def head_is_gone(spec: RunSpec, sights: Sequence[Sight], *, overdue: bool = False) -> Diagnosis | None:
    """None: it answers, or the others train on with it: then only this computer has lost sight of it.

    `overdue`: the others hold no step that it would not have told of.
    """
    head, *others = spec.ranks
    seen = {sight.phone.name: sight for sight in sights}
    answering = [seen[rank.phone] for rank in others if seen[rank.phone].silent is None]
    at_work = any(sight.ranks for sight in answering) and not overdue
    if seen[head.phone].silent is None or not answering or at_work:
        return None
    return _of(seen[head.phone], head)


def refined(diagnosis: Diagnosis, spec: RunSpec, sights: Sequence[Sight]) -> Diagnosis:
    """With what phones say afterwards: who does not answer any more was the cause, not who complained. What is certain
    stands, unless somebody is gone: that an sshd is down or a disk full may be older, or come from the same. Where
    the head phone lost one that is there, it may as well be the head phone's cable."""
    unfit_phones = {
        sight.phone.name: sight for sight in sights if sight.cause and (sight.absent or not diagnosis.certain)
    }
    lost = [rank for rank in spec.ranks if rank.phone in unfit_phones]
    if diagnosis.phone is not None and diagnosis.phone.phone in unfit_phones:
        return _now(diagnosis, unfit_phones[diagnosis.phone.phone], diagnosis.phone)
    if len(lost) == 1:
        return _now(diagnosis, unfit_phones[lost[0].phone], lost[0])
    if lost:
        message = f"{_names(lost)} do not answer: cable, switch or power"
        names = tuple(rank.phone for rank in lost)
        return replace(diagnosis, cause=Cause.PHONE_UNREACHABLE, phone=None, message=message, others=names)
    if diagnosis.phone is not None and diagnosis.cause is Cause.LOST_CONTACT:
        both = [spec.ranks[0], diagnosis.phone]
        message = f"{_names(both)} {LOST_CONTACT} with each other: {_ON_EITHER_SIDE}"
        return replace(diagnosis, phone=None, message=message, others=tuple(rank.phone for rank in both))
    return diagnosis


def _of(sight: Sight, rank: RankSpec) -> Diagnosis:
    return Diagnosis(sight.cause or Cause.PHONE_UNREACHABLE, sight.unfit or "does not answer", rank)


def _now(diagnosis: Diagnosis, sight: Sight, rank: RankSpec) -> Diagnosis:
    """With what is found at that phone."""
    found = _of(sight, rank)
    return replace(diagnosis, cause=found.cause, message=found.message, phone=rank)


def _names(ranks: Sequence[RankSpec]) -> str:
    named = [f"{rank.phone} ({rank.switch}:{rank.port})" for rank in ranks[:4]]
    return ", ".join(named) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
