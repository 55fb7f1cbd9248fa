"""What is not kept for backward but computed again there: as little as a budget allows.

Everything dropped is made again once, when backward first asks for it, together with whatever it is made from that was
dropped as well. So the time it costs is the sum over what is dropped; and some storages, checkpoints, must be kept, or
all the rest comes back at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from phone_agent.nn.graph import Graph
from phone_agent.nn.plan import cost
from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.algorithms import select_direct
from phone_agent.nn.plan.arena import compute_lifetimes, find_peak
from phone_agent.nn.plan.fuse import fuse
from phone_agent.nn.plan.lowered_graph import AddOp, DropoutOp, LoweredGraph, PoolOp, Storage
from phone_agent.nn.plan.ops import Direction
from phone_agent.nn.plan.schedule import Schedule, training_schedule

BATCH = 16
PARTS = 8
WORTH_IT = 0.95  # of the peak: a pass over memory is not spent on less
STRETCHES = (1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 6, 1 / 8, 1 / 12, 1 / 16, 1 / 24)  # between checkpoints, of all there is


@dataclass(frozen=True)
class _Peak:
    """Most bytes at once; and what of the dropped is back at that moment, in the order it was made."""

    bytes: int
    back: tuple[Storage, ...]


@dataclass(frozen=True)
class _Droppable:
    storage: Storage
    bytes: int
    seconds: float
    cheap: bool  # made by passing over memory once


def choose_discarded(graph: Graph, batch: int, arena_budget: int | None, *, half: bool = False) -> tuple[Storage, ...]:
    """Without a budget: sums and pools only, where that lowers the peak. They cost a pass over memory, no products.

    Within a budget: what takes the least time; if nothing fits, the smallest there is.
    """
    choice = _search(graph, half)
    light = choice.light()
    if arena_budget is None:
        return light
    budget = arena_budget * BATCH // batch
    if choice.peak(()) <= budget:
        return ()
    plans = [plan for plan in (light, *choice.plans_within(budget)) if choice.peak(plan) <= budget]
    return min(plans, key=choice.seconds) if plans else choice.improved(choice.smallest([light, *choice.probes()]))


def arena_per_image(graph: Graph, *, recompute: bool, half: bool = False) -> float:
    """Bytes, at the least; without convolutions done twice unless `recompute`."""
    choice = _search(graph, half)
    plans = [choice.light(), *(choice.probes() if recompute else ())]
    return min(map(choice.peak, plans)) / BATCH


@lru_cache(maxsize=8)
def _search(graph: Graph, half: bool) -> _Search:  # noqa: FBT001 - part of what the cache goes by
    network = fuse(graph)
    return _Search(network, Addresses(graph, network, BATCH, threads=1, half=half))


class _Search:
    """Compares ways to drop. Memory grows in proportion to the batch, so all is found out for one size of it."""

    def __init__(self, network: LoweredGraph, places: Addresses) -> None:
        self._network, self._places = network, places
        self._droppable = _droppable(network, places)
        self._checkpoints = _checkpoints(network)
        self._peaks: dict[tuple[Storage, ...], _Peak] = {}
        self._light: tuple[Storage, ...] | None = None

    def light(self) -> tuple[Storage, ...]:
        """The smallest peak that needs no convolution done twice."""
        if self._light is None:
            light = self._extended(self._shifted(self.improved(self.smallest(self.plans(cheap_only=True)))))
            self._light = light if self.peak(light) < WORTH_IT * self.peak(()) else ()
        return self._light

    def _shifted(self, dropped: tuple[Storage, ...]) -> tuple[Storage, ...]:
        """With its neighbour kept instead of what is kept, wherever that lowers the peak."""
        cheap = [each.storage for each in self._droppable if each.cheap]
        while True:
            swaps = [{one, other} for one, other in pairwise(cheap) if (one in dropped) != (other in dropped)]
            better = self.smallest(
                [dropped, *(tuple(each for each in cheap if (each in dropped) != (each in swap)) for swap in swaps)]
            )
            if better == dropped:
                return dropped
            dropped = better

    def _extended(self, dropped: tuple[Storage, ...]) -> tuple[Storage, ...]:
        """With whatever else is cheap and lowers the peak."""
        for each in self._droppable:
            if each.cheap and each.storage not in dropped:
                dropped = self.smallest([dropped, (*dropped, each.storage)])
        return dropped

    def peak(self, dropped: tuple[Storage, ...]) -> int:
        return self._at_peak(dropped).bytes

    def improved(self, dropped: tuple[Storage, ...]) -> tuple[Storage, ...]:
        """Of what comes back all at once at the peak, one in the middle had better be kept."""
        while back := self._at_peak(dropped).back:
            middle = dict.fromkeys(back[len(back) * part // 4] for part in (1, 2, 3))
            better = self.smallest([dropped, *(tuple(each for each in dropped if each is not keep) for keep in middle)])
            if better == dropped:
                break
            dropped = better
        return dropped

    def _at_peak(self, dropped: tuple[Storage, ...]) -> _Peak:
        if dropped not in self._peaks:
            self._peaks[dropped] = _measure(training_schedule(self._network, self._places, select_direct, dropped))
        return self._peaks[dropped]

    def seconds(self, dropped: Iterable[Storage]) -> float:
        gone = set(dropped)
        return sum(each.seconds for each in self._droppable if each.storage in gone)

    def smallest(self, plans: Iterable[tuple[Storage, ...]]) -> tuple[Storage, ...]:
        return min(plans, key=lambda plan: (self.peak(plan), self.seconds(plan)))

    def plans(self, *, cheap_only: bool) -> list[tuple[Storage, ...]]:
        """Everything dropped but checkpoints; and nothing dropped."""
        return [(), *(_storages(order) for order in self._orders(cheap_only=cheap_only))]

    def probes(self) -> list[tuple[Storage, ...]]:
        """More and more of what can be dropped, up to all. Not always the more the better: it comes back."""
        return [plan for order in self._orders(cheap_only=False) for plan in _probes(order)]

    def plans_within(self, budget: int) -> list[tuple[Storage, ...]]:
        """For each distance of checkpoints, the fewest drops that fit, those first that free most for their time."""
        return [self._fewest(order, budget) for order in self._orders(cheap_only=False)]

    def _fewest(self, order: Sequence[_Droppable], budget: int) -> tuple[Storage, ...]:
        few, many = 0, next((len(plan) for plan in _probes(order) if self.peak(plan) <= budget), 0)
        while few < many:
            middle = (few + many) // 2
            if self.peak(_storages(order[:middle])) <= budget:
                many = middle
            else:
                few = middle + 1
        return _storages(order[:many])

    def _orders(self, *, cheap_only: bool) -> list[list[_Droppable]]:
        among = [each for each in self._droppable if each.cheap or not cheap_only]
        among.sort(key=lambda each: -each.bytes / each.seconds)
        orders: dict[frozenset[Storage], list[_Droppable]] = {}
        for stretch in STRETCHES:
            kept = self._kept(among, stretch * sum(each.bytes for each in among))
            orders[kept] = [each for each in among if each.storage not in kept]
        return list(orders.values())

    def _kept(self, among: Iterable[_Droppable], stretch: float) -> frozenset[Storage]:
        """The smallest checkpoint in each stretch of that many bytes."""
        sizes = {each.storage: each.bytes for each in among}
        kept: set[Storage] = set()
        passed, best = 0, None
        for storage in dict.fromkeys(work.y.storage for work in self._network.works):
            passed += sizes.get(storage, 0)
            if storage in self._checkpoints and storage in sizes and (best is None or sizes[storage] <= sizes[best]):
                best = storage
            if passed >= stretch and best is not None:
                kept.add(best)
                passed, best = 0, None
        return frozenset(kept)


def _probes(order: Sequence[_Droppable]) -> list[tuple[Storage, ...]]:
    return [_storages(order[: len(order) * part // PARTS]) for part in range(2, PARTS + 1)]


def _storages(dropped: Iterable[_Droppable]) -> tuple[Storage, ...]:
    return tuple(each.storage for each in dropped)


def _measure(schedule: Schedule) -> _Peak:
    lives = compute_lifetimes(schedule.steps)
    step, most = find_peak(lives)
    back = [
        schedule.back[life.buffer] for life in lives if life.first <= step <= life.last and life.buffer in schedule.back
    ]
    return _Peak(most, tuple(back))


def _droppable(network: LoweredGraph, places: Addresses) -> list[_Droppable]:
    costs: dict[str, float] = {}
    for step in training_schedule(network, places, select_direct).steps:
        if step.direction == Direction.FORWARD:
            costs[step.name] = cost.estimate_seconds([step])
    found = []
    for storage in dict.fromkeys(work.y.storage for work in network.works):
        if storage is not network.scores.storage and storage.writers:
            size = places.batch * storage.pixels * storage.channels
            seconds = sum(costs[work.name] for work in storage.writers)
            cheap = all(isinstance(work, AddOp | DropoutOp | PoolOp) for work in storage.writers)
            found.append(_Droppable(storage, size, seconds, cheap))
    return found


def _checkpoints(network: LoweredGraph) -> frozenset[Storage]:
    """Storages from which alone everything later can be computed."""
    last_read = {value.storage: index for index, work in enumerate(network.works) for value in work.inputs}
    live: set[Storage] = {network.image.storage}
    found = set()
    for index, work in enumerate(network.works):
        live.add(work.y.storage)
        live = {storage for storage in live if last_read.get(storage, index) > index}
        if len(live) == 1:
            found |= live
    return frozenset(found)
