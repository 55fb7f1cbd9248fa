"""Rematerialization: which activations are discarded after forward and recomputed in backward, to fit a budget.

A discarded storage is recomputed once, when backward first needs it, together with any discarded storage it depends on.
So the cost is the sum over all discarded storages. Some storages must be kept as checkpoints, or everything would be
recomputed and live at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from phone_agent.nn.graph import Graph
from phone_agent.nn.plan import ops
from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.algorithms import select_direct
from phone_agent.nn.plan.arena import compute_lifetimes, find_peak
from phone_agent.nn.plan.fuse import fuse
from phone_agent.nn.plan.lowered_graph import AddOp, DropoutOp, LoweredGraph, PoolOp, Storage
from phone_agent.nn.plan.ops import Direction
from phone_agent.nn.plan.schedule import Schedule, training_schedule

BATCH = 16  # memory is proportional to the batch, so one batch size is enough to compare choices
PARTS = 8
MIN_GAIN = 0.95  # cheap recomputation must lower the peak at least to this fraction
# Distances between checkpoints that are tried, as fractions of all bytes that can be discarded.
CHECKPOINT_DISTANCES = (1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 6, 1 / 8, 1 / 12, 1 / 16, 1 / 24)

Discarded = tuple[Storage, ...]


@dataclass(frozen=True)
class _Peak:
    """Peak bytes, and the recomputed storages that are live at the peak, in the order they were recomputed."""

    bytes: int
    rematerialized: Discarded


@dataclass(frozen=True)
class _Candidate:
    """A storage that can be discarded. `cheap`: recomputing it is one pass over memory."""

    storage: Storage
    bytes: int
    seconds: float
    cheap: bool


def choose_discarded(graph: Graph, batch: int, arena_budget: int | None, *, half: bool = False) -> Discarded:
    """Without a budget: only additions, dropouts and pools, and only if that lowers the peak.

    With a budget: what costs the least time. If nothing fits: what gives the smallest peak.
    """
    search = _search(graph, half)
    cheap = search.cheap_only()
    if arena_budget is None:
        return cheap
    budget = arena_budget * BATCH // batch
    if search.peak(()) <= budget:
        return ()
    fitting = [choice for choice in (cheap, *search.choices_within(budget)) if search.peak(choice) <= budget]
    if fitting:
        return min(fitting, key=search.seconds)
    return search.improve(search.smallest([cheap, *search.probes()]))


def arena_per_image(graph: Graph, *, recompute: bool, half: bool = False) -> float:
    """The fewest arena bytes per image. Convolutions are computed twice only if `recompute`."""
    search = _search(graph, half)
    choices = [search.cheap_only(), *(search.probes() if recompute else ())]
    return min(map(search.peak, choices)) / BATCH


@lru_cache(maxsize=8)
def _search(graph: Graph, half: bool) -> _Search:  # noqa: FBT001 - part of the cache key
    lowered = fuse(graph)
    return _Search(lowered, Addresses(graph, lowered, BATCH, threads=1, half=half))


class _Search:
    """Compares sets of discarded storages by the peak of their schedules."""

    def __init__(self, lowered: LoweredGraph, addresses: Addresses) -> None:
        self._lowered, self._addresses = lowered, addresses
        self._candidates = _find_candidates(lowered, addresses)
        self._checkpoints = _find_checkpoints(lowered)
        self._peaks: dict[Discarded, _Peak] = {}
        self._cheap_only: Discarded | None = None

    def cheap_only(self) -> Discarded:
        """The smallest peak that needs no convolution twice; nothing discarded if that gains too little."""
        if self._cheap_only is None:
            smallest = self.smallest(self._all_but_checkpoints(cheap_only=True))
            choice = self._extend(self._swap_neighbors(self.improve(smallest)))
            self._cheap_only = choice if self.peak(choice) < MIN_GAIN * self.peak(()) else ()
        return self._cheap_only

    def _swap_neighbors(self, discarded: Discarded) -> Discarded:
        """Keep a neighbor instead of a kept storage, as long as that lowers the peak."""
        cheap = [each.storage for each in self._candidates if each.cheap]
        while True:
            swaps = [{one, other} for one, other in pairwise(cheap) if (one in discarded) != (other in discarded)]
            better = self.smallest(
                [discarded, *(tuple(each for each in cheap if (each in discarded) != (each in swap)) for swap in swaps)]
            )
            if better == discarded:
                return discarded
            discarded = better

    def _extend(self, discarded: Discarded) -> Discarded:
        """Also discard any other cheap storage that lowers the peak."""
        for each in self._candidates:
            if each.cheap and each.storage not in discarded:
                discarded = self.smallest([discarded, (*discarded, each.storage)])
        return discarded

    def peak(self, discarded: Discarded) -> int:
        return self._peak(discarded).bytes

    def improve(self, discarded: Discarded) -> Discarded:
        """Keep one of the storages that are recomputed together at the peak, as long as that lowers it."""
        while live := self._peak(discarded).rematerialized:
            middle = dict.fromkeys(live[len(live) * part // 4] for part in (1, 2, 3))
            better = self.smallest(
                [discarded, *(tuple(each for each in discarded if each is not keep) for keep in middle)]
            )
            if better == discarded:
                break
            discarded = better
        return discarded

    def _peak(self, discarded: Discarded) -> _Peak:
        if discarded not in self._peaks:
            schedule = training_schedule(self._lowered, self._addresses, select_direct, discarded)
            self._peaks[discarded] = _measure_peak(schedule)
        return self._peaks[discarded]

    def seconds(self, discarded: Iterable[Storage]) -> float:
        gone = set(discarded)
        return sum(each.seconds for each in self._candidates if each.storage in gone)

    def smallest(self, choices: Iterable[Discarded]) -> Discarded:
        return min(choices, key=lambda choice: (self.peak(choice), self.seconds(choice)))

    def _all_but_checkpoints(self, *, cheap_only: bool) -> list[Discarded]:
        """Nothing discarded; and for each checkpoint distance, everything but the checkpoints."""
        return [(), *(_storages(order) for order in self._orders(cheap_only=cheap_only))]

    def probes(self) -> list[Discarded]:
        """More and more discarded, up to all. More is not always better, since it is recomputed later."""
        return [choice for order in self._orders(cheap_only=False) for choice in _prefixes(order)]

    def choices_within(self, budget: int) -> list[Discarded]:
        """For each checkpoint distance, the fewest storages that must be discarded to fit."""
        return [self._fewest(order, budget) for order in self._orders(cheap_only=False)]

    def _fewest(self, order: Sequence[_Candidate], budget: int) -> Discarded:
        few, many = 0, next((len(choice) for choice in _prefixes(order) if self.peak(choice) <= budget), 0)
        while few < many:
            middle = (few + many) // 2
            if self.peak(_storages(order[:middle])) <= budget:
                many = middle
            else:
                few = middle + 1
        return _storages(order[:many])

    def _orders(self, *, cheap_only: bool) -> list[list[_Candidate]]:
        """Candidates without the checkpoints of each distance, those first that free most bytes per second."""
        candidates = [each for each in self._candidates if each.cheap or not cheap_only]
        candidates.sort(key=lambda each: -each.bytes / each.seconds)
        total = sum(each.bytes for each in candidates)
        orders: dict[frozenset[Storage], list[_Candidate]] = {}
        for distance in CHECKPOINT_DISTANCES:
            kept = self._kept(candidates, distance * total)
            orders[kept] = [each for each in candidates if each.storage not in kept]
        return list(orders.values())

    def _kept(self, candidates: Iterable[_Candidate], distance: float) -> frozenset[Storage]:
        """The smallest checkpoint in each stretch of `distance` bytes."""
        sizes = {each.storage: each.bytes for each in candidates}
        kept: set[Storage] = set()
        passed, best = 0, None
        for storage in dict.fromkeys(op.y.storage for op in self._lowered.ops):
            passed += sizes.get(storage, 0)
            if storage in self._checkpoints and storage in sizes and (best is None or sizes[storage] <= sizes[best]):
                best = storage
            if passed >= distance and best is not None:
                kept.add(best)
                passed, best = 0, None
        return frozenset(kept)


def _prefixes(order: Sequence[_Candidate]) -> list[Discarded]:
    return [_storages(order[: len(order) * part // PARTS]) for part in range(2, PARTS + 1)]


def _storages(candidates: Iterable[_Candidate]) -> Discarded:
    return tuple(each.storage for each in candidates)


def _measure_peak(schedule: Schedule) -> _Peak:
    lifetimes = compute_lifetimes(schedule.ops)
    peak_op, most = find_peak(lifetimes)
    live = (life.buffer for life in lifetimes if life.first <= peak_op <= life.last)
    return _Peak(most, tuple(schedule.rematerialized[buffer] for buffer in live if buffer in schedule.rematerialized))


def _find_candidates(lowered: LoweredGraph, addresses: Addresses) -> list[_Candidate]:
    costs: dict[str, float] = {}
    for op in training_schedule(lowered, addresses, select_direct).ops:
        if op.direction == Direction.FORWARD:
            costs[op.name] = ops.estimate_seconds([op])
    candidates = []
    for storage in dict.fromkeys(op.y.storage for op in lowered.ops):
        if storage is not lowered.scores.storage and storage.writers:
            size = addresses.batch * storage.pixels * storage.channels
            seconds = sum(costs[op.name] for op in storage.writers)
            cheap = all(isinstance(op, AddOp | DropoutOp | PoolOp) for op in storage.writers)
            candidates.append(_Candidate(storage, size, seconds, cheap))
    return candidates


def _find_checkpoints(lowered: LoweredGraph) -> frozenset[Storage]:
    """Storages from which alone everything later can be computed."""
    last_read = {value.storage: index for index, op in enumerate(lowered.ops) for value in op.inputs}
    live: set[Storage] = {lowered.image.storage}
    found = set()
    for index, op in enumerate(lowered.ops):
        live.add(op.y.storage)
        live = {storage for storage in live if last_read.get(storage, index) > index}
        if len(live) == 1:
            found |= live
    return frozenset(found)
