"""Load balancing: which rank computes which images of a step, and when all ranks pause.

Every rank makes the same decisions from the same exchanged results. All ranks know the results of a step before they
start the second step after it (`SYNC_LAG`), and a change takes effect from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phone_agent.contract.schema import RunSpec
from phone_agent.contract.sharding import is_replicated
from phone_agent.device.condition import Condition, Level
from phone_agent.train.batch_split import BatchSplitter, SplitChange, StepTimings
from phone_agent.train.events import location
from phone_agent.train.loop import SYNC_LAG, split_micro_batches
from phone_agent.train.rank_steps import Conditions, RankSteps


@dataclass(frozen=True)
class Rebalance:
    """Batches by rank, from `step` on. `blocked`: they would be faster, but samples cannot move between phones."""

    step: int
    batches: tuple[int, ...]
    reason: str
    blocked: bool = False


def is_balanced(spec: RunSpec) -> bool:
    """With local steps, each phone keeps a batch of its own."""
    return spec.compute.load_balancing == "auto" and spec.communication.local_steps == 1 and len(spec.ranks) > 1


def can_move_images(spec: RunSpec) -> bool:
    """Whether another phone can compute a phone's images. If each phone has only its own partition, it cannot: every
    phone must go through its whole partition in an epoch, so other batches would not shorten the epoch."""
    return is_balanced(spec) and is_replicated(spec.data)


class LoadBalancer:
    """`largest`: maximum micro-batch. The communication thread calls `observe`, the compute thread everything else."""

    def __init__(self, spec: RunSpec, rank: int, largest: int) -> None:
        self._spec, self._rank, self._largest = spec, rank, largest
        self._balanced, self._can_move = is_balanced(spec), can_move_images(spec)
        self._smallest = spec.compute.min_micro_batch
        self._splitter = BatchSplitter([each.batch for each in spec.ranks], self._smallest)
        self._history = [Rebalance(0, self._splitter.batches, "")]
        self._pause_from: int | None = None

    def batches(self, step: int) -> tuple[int, ...]:
        return next(each.batches for each in reversed(self._history) if each.step <= step)

    def micro_batches(self, step: int) -> list[slice]:
        batches = self.batches(step)
        first = sum(batches[: self._rank]) if is_replicated(self._spec.data) else 0
        return split_micro_batches(batches[self._rank], self._largest, first, self._smallest)

    def observe(self, step: int, results: RankSteps) -> Rebalance | None:
        """The change that follows from these results, if any."""
        if self._pause_from is None and self.must_pause(results.conditions):
            self._pause_from = step + SYNC_LAG
        change = self._splitter.observe(self._timings(results)) if self._balanced else None
        if change is None:
            return None
        phone, cause = location(self._spec.ranks[change.rank]), explain(change, results.conditions[change.rank])
        if not self._can_move:
            return Rebalance(step, change.after, f"{phone}: {cause}", blocked=True)
        moved = f"{change.before[change.rank]} -> {change.after[change.rank]} images per step"
        rebalance = Rebalance(step + SYNC_LAG, change.after, f"{phone} {moved}: {cause}")
        self._history = [self._history[-1], rebalance]
        return rebalance

    def _timings(self, results: RankSteps) -> StepTimings:
        work_fractions = results.conditions.column("work_fraction")
        if not self._can_move:
            work_fractions = np.ones_like(work_fractions)
        return StepTimings(results.images, results.compute_s, results.comm_s, work_fractions)

    def must_pause(self, conditions: Conditions) -> bool:
        """A phone at its limit pauses alone if others can compute its images. Otherwise all phones pause."""
        at_limit = conditions.column("work_fraction") == 0
        return bool(at_limit.all() or (at_limit.any() and not self._can_move))

    def pauses_before(self, step: int) -> bool:
        return self._pause_from is not None and self._pause_from <= step

    def resume(self) -> None:
        """To be called while no step is in progress."""
        self._pause_from = None


def explain(change: SplitChange, condition: Condition) -> str:
    """Why the batch of the most affected phone changes. `condition`: its own."""
    if condition.level >= Level.REDUCE:
        return condition.reason()
    if condition.work_fraction < 1:
        return "recovering, so its share of the work is restored gradually"
    slower = f"it takes {change.slowdown:.1f} times as long per image as the others"
    return f"{slower}, {condition.describe_clock()}" if condition.throttled else slower
