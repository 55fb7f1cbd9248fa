"""Which faults are injected, when, and where: decided by a seed before anything is touched."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from orchestrator.chaos.catalog import CATALOG, TWO_AT_ONCE, Fault, Target, combinable_faults

KINDS = (*(fault.name for fault in CATALOG), TWO_AT_ONCE)
MAX_INJECTIONS = 4  # per run
FIRST, LAST = 0.1, 0.8  # when they are made, as fractions of the steps of a run


@dataclass(frozen=True)
class PlannedFault:
    fault: Fault
    rank: int  # of the phone to hit; another one if that phone has left the run


@dataclass(frozen=True)
class Injection:
    """The faults that are injected at the same time."""

    at_step: int
    faults: tuple[PlannedFault, ...]

    @property
    def kind(self) -> str:
        return TWO_AT_ONCE if len(self.faults) > 1 else self.faults[0].fault.name


@dataclass(frozen=True)
class RunPlan:
    number: int  # from 1
    phones: int
    injections: tuple[Injection, ...]
    attached: bool = True  # whether a viewer is attached to the run

    def limited_to(self, injections: int) -> RunPlan:
        return replace(self, injections=self.injections[:injections])


def generate_plans(
    seed: int,
    phones: range,
    steps: int,
    supported: Collection[Fault] = CATALOG,
    kinds: Collection[str] = KINDS,
) -> Iterator[RunPlan]:
    """Plans of runs, without end. Kinds come from a shuffled deck, so that all are equally frequent. Nobody is attached
    to every second run."""
    rng = random.Random(seed)  # noqa: S311  (reproducible on purpose)
    deck = _shuffled_faults(rng, supported, kinds)
    number = 0
    while True:
        number += 1
        ranks, count = rng.choice(phones), rng.randint(1, MAX_INJECTIONS)
        injections = tuple(
            Injection(at_step, _plan_faults(rng, next(deck), ranks)) for at_step in _choose_steps(rng, count, steps)
        )
        yield RunPlan(number, ranks, injections, attached=(seed + number) % 2 == 0)


def _shuffled_faults(
    rng: random.Random, supported: Collection[Fault], kinds: Collection[str]
) -> Iterator[Fault | None]:
    """None: two at once. Unsupported faults are removed after the shuffle, so that the plan is otherwise the same."""
    while True:
        deck: list[Fault | None] = [*CATALOG, None]
        rng.shuffle(deck)
        requested = (fault for fault in deck if (fault.name if fault else TWO_AT_ONCE) in kinds)
        yield from (fault for fault in requested if fault is None or fault in supported)


def _plan_faults(rng: random.Random, fault: Fault | None, phones: int) -> tuple[PlannedFault, ...]:
    if fault is not None:
        return (PlannedFault(fault, _choose_rank(rng, fault, phones)),)
    first = rng.choice(combinable_faults())
    hosts = {Target.HOST} if first.target is Target.HOST else set()
    second = rng.choice([each for each in combinable_faults() if each != first and each.target not in hosts])
    one = PlannedFault(first, _choose_rank(rng, first, phones))
    other_rank = 0 if second.target is Target.HEAD_PHONE else _choose_other_rank(rng, one.rank, phones)
    return one, PlannedFault(second, other_rank)


def _choose_rank(rng: random.Random, fault: Fault, phones: int) -> int:
    return 0 if fault.target is Target.HEAD_PHONE else rng.randrange(phones)


def _choose_other_rank(rng: random.Random, rank: int, phones: int) -> int:
    return (rank + rng.randrange(1, phones)) % phones


def _choose_steps(rng: random.Random, count: int, steps: int) -> list[int]:
    """One step in each of `count` equal parts of the run."""
    span = (LAST - FIRST) / count
    return [max(1, round(steps * (FIRST + span * (part + rng.random() / 2)))) for part in range(count)]
