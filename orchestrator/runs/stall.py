"""What is wrong with a run from which nothing is heard, by what its phones say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.runs.diagnosis import Diagnosis
from orchestrator.runs.look import Sight
from phone_agent.schema import RankSpec, RunSpec


def stalled(spec: RunSpec, sights: Sequence[Sight]) -> Diagnosis | None:
    """None: every rank is there, and works. A phone whose sshd alone is gone trains on."""
    seen = {sight.phone.name: sight for sight in sights}
    others = [sight for sight in sights if sight.silent is None]
    for rank in spec.ranks:
        sight = seen[rank.phone]
        if sight.silent is not None and not sight.refused:
            return Diagnosis(sight.unfit or "does not answer", rank)
        if sight.silent is None and not sight.ranks:
            return Diagnosis("its rank is gone", rank)
        if sight.frozen and any(other.moves for other in others):
            return Diagnosis("its rank is frozen: it is there, but gets nowhere", rank)
    return None


def head_is_gone(spec: RunSpec, sights: Sequence[Sight]) -> Diagnosis | None:
    """None: it answers, or the others train on with it: then only this computer has lost sight of it."""
    head, *others = spec.ranks
    seen = {sight.phone.name: sight for sight in sights}
    answering = [seen[rank.phone] for rank in others if seen[rank.phone].silent is None]
    if seen[head.phone].silent is None or not answering or any(sight.ranks for sight in answering):
        return None
    return Diagnosis(seen[head.phone].unfit or "does not answer", head)


def refined(diagnosis: Diagnosis, spec: RunSpec, sights: Sequence[Sight]) -> Diagnosis:
    """With what phones say afterwards: who does not answer any more was the cause, not who complained."""
    unfit = {sight.phone.name: sight.unfit for sight in sights if sight.unfit}
    lost = [rank for rank in spec.ranks if rank.phone in unfit]
    if diagnosis.phone is not None and diagnosis.phone.phone in unfit:
        return replace(diagnosis, message=unfit[diagnosis.phone.phone] or diagnosis.message)
    if len(lost) == 1:
        return replace(diagnosis, phone=lost[0], message=unfit[lost[0].phone] or diagnosis.message)
    if lost:
        return replace(diagnosis, phone=None, message=f"{_names(lost)} do not answer: cable, switch or power")
    return diagnosis


def _names(ranks: Sequence[RankSpec]) -> str:
    named = [f"{rank.phone} ({rank.switch}:{rank.port})" for rank in ranks[:4]]
    return ", ".join(named) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
