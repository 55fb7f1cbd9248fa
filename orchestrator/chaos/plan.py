"""Which faults, when, and on whom: decided by a seed before anything is touched."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from orchestrator.chaos.catalogue import CATALOGUE, TWO_AT_ONCE, Fault, Target, paired

KINDS = (*(fault.name for fault in CATALOGUE), TWO_AT_ONCE)
MOST_BLOWS = 4  # a run
FIRST, LAST = 0.1, 0.8  # when they come, as parts of the run's steps


@dataclass(frozen=True)
class Strike:
    fault: Fault
    seat: int  # whom, by rank; the next one if that phone is out of the run already


@dataclass(frozen=True)
class Blow:
    """What comes at one moment."""

    at_step: int
    strikes: tuple[Strike, ...]

    @property
    def name(self) -> str:
        return TWO_AT_ONCE if len(self.strikes) > 1 else self.strikes[0].fault.name


@dataclass(frozen=True)
class RunPlan:
    number: int  # from 1
    phones: int
    blows: tuple[Blow, ...]

    def at_most(self, blows: int) -> RunPlan:
        return replace(self, blows=self.blows[:blows])


def endless_plan(
    seed: int,
    phones: range,
    steps: int,
    offered: Collection[Fault] = CATALOGUE,
    kinds: Collection[str] = KINDS,
) -> Iterator[RunPlan]:
    """Runs, one after the other. Kinds are dealt like cards, so that each comes as often as any other."""
    dice = random.Random(seed)  # noqa: S311 - to be the same again is the point
    cards = _cards(dice, offered, kinds)
    number = 0
    while True:
        number += 1
        seats, count = dice.choice(phones), dice.randint(1, MOST_BLOWS)
        blows = tuple(Blow(at_step, _strikes(dice, next(cards), seats)) for at_step in _moments(dice, count, steps))
        yield RunPlan(number, seats, blows)


def _cards(dice: random.Random, offered: Collection[Fault], kinds: Collection[str]) -> Iterator[Fault | None]:
    """None: two at once. What is not offered is left out of the same deck: the plan is the same up to there."""
    while True:
        deck: list[Fault | None] = [*CATALOGUE, None]
        dice.shuffle(deck)
        wanted = (card for card in deck if (card.name if card else TWO_AT_ONCE) in kinds)
        yield from (card for card in wanted if card is None or card in offered)


def _strikes(dice: random.Random, card: Fault | None, phones: int) -> tuple[Strike, ...]:
    if card is not None:
        return (Strike(card, _seat(dice, card, phones)),)
    first, second = dice.sample(paired(), 2)
    one = Strike(first, _seat(dice, first, phones))
    return one, Strike(second, 0 if second.target is Target.HEAD else _another(dice, one.seat, phones))


def _seat(dice: random.Random, fault: Fault, phones: int) -> int:
    return 0 if fault.target is Target.HEAD else dice.randrange(phones)


def _another(dice: random.Random, seat: int, phones: int) -> int:
    return (seat + dice.randrange(1, phones)) % phones


def _moments(dice: random.Random, count: int, steps: int) -> list[int]:
    """One in each of as many parts of the run."""
    span = (LAST - FIRST) / count
    return [max(1, round(steps * (FIRST + span * (part + dice.random() / 2)))) for part in range(count)]
