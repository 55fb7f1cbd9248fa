"""Who computes which images of a step, and when nobody computes at all. Every rank decides the same from the same rows.

What all told of a step is known to all ranks before the second step after it: from then on a change is in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.contract.schema import RunSpec
from phone_agent.contract.sharding import is_replicated
from phone_agent.device.condition import Condition, Level
from phone_agent.train.batch_split import Balancer, Change, Taken
from phone_agent.train.loop import AGREED_AFTER, micro_batches
from phone_agent.train.progress import RankStep, where


@dataclass(frozen=True)
class Share:
    """From `step` on, these batches, by rank. `stuck`: they would be better, but cannot be."""

    step: int
    batches: tuple[int, ...]
    why: str
    stuck: bool = False


def balanced(spec: RunSpec) -> bool:
    """Where phones step alone, each has a batch of its own."""
    return spec.compute.load_balancing == "auto" and spec.communication.local_steps == 1 and len(spec.ranks) > 1


def movable(spec: RunSpec) -> bool:
    """Another phone can take a phone's images. Where each has only its share of the samples, it cannot: and since a
    phone must go through all of its share in an epoch, other batches would make no epoch shorter."""
    return balanced(spec) and is_replicated(spec.data)


class Sharing:
    """`largest`: images computed at once. `observe` is the communication thread's, all else the computing thread's."""

    def __init__(self, spec: RunSpec, rank: int, largest: int) -> None:
        self._spec, self._rank, self._largest = spec, rank, largest
        self._balanced, self._movable = balanced(spec), movable(spec)
        self._balancer = Balancer([each.batch for each in spec.ranks])
        self._shares = [Share(0, self._balancer.batches, "")]
        self._rest_from: int | None = None

    def batches(self, step: int) -> tuple[int, ...]:
        return next(share.batches for share in reversed(self._shares) if share.step <= step)

    def parts(self, step: int) -> list[slice]:
        batches = self.batches(step)
        first = sum(batches[: self._rank]) if is_replicated(self._spec.data) else 0
        return micro_batches(batches[self._rank], self._largest, first)

    def observe(self, step: int, rows: Sequence[RankStep]) -> Share | None:
        """What changes, if anything does."""
        if self._rest_from is None and self.must_rest([row.condition for row in rows]):
            self._rest_from = step + AGREED_AFTER
        change = self._balancer.observe([self._taken(row) for row in rows]) if self._balanced else None
        if change is None:
            return None
        phone, cause = where(self._spec.ranks[change.rank]), reason(change, rows)
        if not self._movable:
            return Share(step, change.after, f"{phone}: {cause}", stuck=True)
        moved = f"{change.before[change.rank]} -> {change.after[change.rank]} images a step"
        share = Share(step + AGREED_AFTER, change.after, f"{phone} {moved}: {cause}")
        self._shares = [self._shares[-1], share]
        return share

    def _taken(self, row: RankStep) -> Taken:
        return Taken(row.images, row.compute_s, row.comm_s, row.condition.work_fraction if self._movable else 1.0)

    def must_rest(self, conditions: Sequence[Condition]) -> bool:
        """A phone at its limit rests alone where the others can take its images. Otherwise all do."""
        at_limit = [condition.work_fraction == 0 for condition in conditions]
        return all(at_limit) or (any(at_limit) and not self._movable)

    def rests_before(self, step: int) -> bool:
        return self._rest_from is not None and self._rest_from <= step

    def rested(self) -> None:
        """Once no step is under way."""
        self._rest_from = None


def reason(change: Change, rows: Sequence[RankStep]) -> str:
    """What there is about the phone whose share changes most."""
    condition = rows[change.rank].condition
    if condition.level >= Level.REDUCE:
        return condition.reason()
    if condition.work_fraction < 1:
        return "it recovers, and gets its work back bit by bit"
    slower = f"an image takes it {change.times:.1f} times as long as the others"
    return f"{slower}, {condition.describe_clock()}" if condition.throttled else slower
