"""Ranks may be killed at any moment, each at another one. Here all of them are tried: between any two stores of a mark
and in the middle of every copy, on every rank, wherever the others may be by then."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent.memckpt import client, header, replica
from phone_agent.memckpt.elect_step import agree
from phone_agent.memckpt.header import Mark
from phone_agent.memckpt.memfd import allocate
from phone_agent.memckpt.rank_state import OWN, STATISTICS, Kept
from phone_agent.memckpt.server import keep
from tests.phone_agent.thread_world import ThreadWorld, on_ranks

Buffers = dict[str, NDArray[np.float32]]
NAMES = ("values", "momenta", "second_momenta", STATISTICS, "residuals")
LENGTH = 6
STEPS = 3  # of an attempt
EVERYWHERE = [("values", "momenta"), ("momenta",), ()]  # what lives in the keeper's memory


def after(step: int, rank: int) -> Buffers:
    """A training state. Ranks that step alone have values of their own."""
    return {name: np.full(LENGTH, 100 * step + 10 * rank + number, np.float32) for number, name in enumerate(NAMES)}


@dataclass(frozen=True)
class Moment:
    """What a rank leaves if it is killed now. `entered` and `left`: how many exchanges with the others; `heard`: the
    last step of which it knows that all have it."""

    memory: bytes
    held: tuple[Mark, ...]
    entered: int
    left: int
    heard: int

    @property
    def kind(self) -> tuple[Any, ...]:
        return self.held, self.entered, self.left, self.heard


@dataclass
class Diary:
    """Of a rank, in an attempt."""

    run: Path
    like: Buffers
    living: Sequence[str]
    heard: int
    moments: list[Moment] = field(default_factory=list)
    entered: int = 0
    left: int = 0

    def __post_init__(self) -> None:
        keeper = client.Keeper(self.run)
        descriptor, _ = keeper.open(replica.signature(self.like, self.living), replica.size(self.like))
        self.memory = mmap.mmap(descriptor, replica.size(self.like))
        os.close(descriptor)
        keeper.close()

    def write(self) -> None:
        held = tuple(header.held(header.read(self.memory)))
        self.moments.append(Moment(self.memory[:], held, self.entered, self.left, self.heard))


class Writing(threading.local):
    diary: Diary | None = None

    def moment(self) -> None:
        if self.diary is not None:
            self.diary.write()


WRITING = Writing()


class Stores:
    """Of numbers in a mark: there is a moment after each."""

    def __init__(self, number: Any) -> None:
        self.size, self.unpack_from, self._number = number.size, number.unpack_from, number

    def pack_into(self, *arguments: Any) -> None:
        self._number.pack_into(*arguments)
        WRITING.moment()


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_halves(into: NDArray[Any], source: NDArray[Any]) -> None:
        middle = into.size // 2
        for part in (slice(middle), slice(middle, None)):
            into[part] = source[part]
            WRITING.moment()

    monkeypatch.setattr(header, "_NUMBER", Stores(header._NUMBER))
    monkeypatch.setattr(np, "copyto", by_halves)


class Watched(ThreadWorld):
    """Exchanges are written down."""

    def __init__(self, world: ThreadWorld, diary: Diary) -> None:
        super().__init__(world.rank, world.size, world._edges, world._sums)
        self._diary = diary

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        self._diary.entered += 1
        self._diary.write()
        rows = super().allgather(row)
        self._diary.left += 1
        self._diary.write()
        return rows

    def allreduce(self, buffer: NDArray[np.float32]) -> None:
        buffer[...] = self.allgather(buffer.astype(np.float64)).sum(axis=0)
        self._diary.write()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[Path]]:
    """Of three phones, each with somebody who holds its state."""
    made = [tmp_path / str(rank) for rank in range(3)]
    holders = []
    for run in made:
        run.mkdir()
        holders.append(threading.Thread(target=keep, args=(run,)))
        holders[-1].start()
    while not all(map(client.listens, made)):
        time.sleep(0.01)
    yield made
    for run, holder in zip(made, holders, strict=True):
        client.end(run)
        holder.join()


class Rank:
    """Trains as the communication and the computing thread do. `found`: what it goes on from."""

    def __init__(self, world: ThreadWorld, run: Path, attempt: int, living: Sequence[str], heard: int) -> None:
        self.buffers = after(0, world.rank)
        self.diary = WRITING.diary = Diary(run, self.buffers, living, heard)
        self._world = Watched(world, self.diary)
        self.kept = Kept(run, attempt, self.buffers, living, self._world, pytest.fail)
        for name, there in self.kept.live.items():
            if not self.kept.goes_on:
                there[...] = self.buffers[name]
            self.buffers[name] = there
        self.step = self.kept.restore(self.buffers, self._world.allreduce)
        self.found = {name: buffer.copy() for name, buffer in self.buffers.items()}
        self.diary.write()

    def train(self, steps: int) -> None:
        for step in range(self.step + 1, self.step + steps + 1):
            self._one(step, after(step, self._world.rank))
        self.kept._keeper.close()
        WRITING.diary = None

    def _one(self, step: int, new: Buffers) -> None:
        self._become(STATISTICS, new)
        self.kept.note(step)
        self.buffers[STATISTICS][...] = -1  # the next step's forward is under way
        for name in ("residuals", "values", "momenta", "second_momenta"):
            self._become(name, new)
        self.kept.commit(step)
        self._world.allgather(np.zeros(1))
        self.diary.heard = step
        self.kept.follow(step)

    def _become(self, name: str, new: Buffers) -> None:
        np.copyto(self.buffers[name], new[name])


def trained(runs: Sequence[Path], attempt: int, living: Sequence[str], heard: int = 0) -> list[Rank]:
    """Some steps of an attempt on as many ranks; `heard` of the step that it goes on from."""

    def work(world: ThreadWorld) -> Rank:
        rank = Rank(world, runs[world.rank], attempt, living, heard)
        rank.train(STEPS)
        return rank

    return on_ranks(len(runs), work, patience_s=60)


def possible(together: Sequence[Moment]) -> bool:
    """Nobody leaves an exchange that somebody has not come to."""
    return max(moment.left for moment in together) <= min(moment.entered for moment in together)


def kinds(ranks: Sequence[Rank]) -> list[tuple[Moment, ...]]:
    """All ways for ranks to be killed, but for moments that differ in nothing that others may see."""
    each = [{moment.kind: moment for moment in rank.diary.moments}.values() for rank in ranks]
    return [together for together in product(*each) if possible(together)]


def assert_whole(rank: Rank, states: dict[int, Buffers], living: Sequence[str]) -> None:
    """Whenever it is killed: what is marked is what it says."""
    made = allocate(replica.size(rank.buffers), "test")
    WRITING.diary = None
    memory = mmap.mmap(made.descriptor, made.size)
    kept = replica.Copies(made.descriptor, rank.buffers, living)
    os.close(made.descriptor)
    for left, mark in ((moment.memory, mark) for moment in rank.diary.moments for mark in moment.held):
        memory[:] = left
        if header.read(memory)[header.LIVE] == mark:
            assert all((live == states[mark.step][name]).all() for name, live in kept.live.items()), f"live as {mark}"
        found = {name: np.empty_like(buffer) for name, buffer in rank.buffers.items()}
        kept.secure(mark)
        kept.read(mark, found)
        for name in NAMES:
            np.testing.assert_array_equal((found | kept.live)[name], states[mark.step][name], f"{name} of {mark}")


def assert_in_step(together: Sequence[Moment], start: int) -> None:
    """Wherever each is killed, in an attempt that started from that step: no step is lost that anybody has heard of;
    and once all have something of this attempt, as whoever has heard of a step knows, each goes on from its own."""
    agreed = agree([moment.held for moment in together])
    heard = max(moment.heard for moment in together)
    if agreed is None:
        assert heard == 0
        return
    assert heard <= agreed.mark.step <= heard + 1
    newest = agreed.mark.attempt
    all_have = all(mark.attempt == newest for moment in together for mark in moment.held[-1:]) and all(
        moment.held for moment in together
    )
    assert all_have or heard == start
    assert not all_have or agreed.holders == tuple(range(len(together)))


def leave(rank: Rank, moment: Moment) -> None:
    rank.diary.memory[:] = moment.memory


def gone_on(
    runs: Sequence[Path], before: Sequence[dict[int, Buffers]], together: Sequence[Moment], attempt: int, living: Any
) -> tuple[list[Rank], list[dict[int, Buffers]]]:
    """The next attempt after these were killed; and the states its ranks may be found to hold."""
    agreed = agree([moment.held for moment in together])
    ranks, states = trained(runs, attempt, living, agreed.mark.step if agreed else 0), []
    for number, rank in enumerate(ranks):
        own = {step: after(step, number) for step in range(rank.step + 1, rank.step + STEPS + 1)}
        if agreed is None:
            assert rank.step == 0
            states.append(own)
            continue
        assert rank.step == agreed.mark.step
        whose = number if number in agreed.holders else agreed.holders[0]
        expected = dict(before[whose][rank.step])
        if whose != number:
            expected |= {name: np.zeros(LENGTH, np.float32) for name in OWN}
        for name in NAMES:
            np.testing.assert_array_equal(rank.found[name], expected[name], f"{name} of rank {number}")
        states.append(before[number] | {rank.step: expected} | own)
    return ranks, states


def first_attempt(count: int) -> list[dict[int, Buffers]]:
    return [{step: after(step, rank) for step in range(1, STEPS + 1)} for rank in range(count)]


@pytest.mark.parametrize("living", EVERYWHERE)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_ranks_killed_at_any_moment_of_training_hold_a_step_in_common(
    runs: list[Path], count: int, living: Sequence[str]
) -> None:
    ranks, states = trained(runs[:count], 0, living), first_attempt(count)
    for rank, own in zip(ranks, states, strict=True):
        assert_whole(rank, own, living)
    ends = kinds(ranks)
    assert len({tuple(moment.held for moment in together) for together in ends}) >= 2 * STEPS
    for together in ends:
        assert_in_step(together, 0)


@pytest.mark.parametrize("living", EVERYWHERE)
@pytest.mark.parametrize(("count", "tries"), [(2, 40), (3, 20)])
def test_attempts_that_are_killed_at_any_moment_go_on_exactly(
    runs: list[Path], count: int, tries: int, living: Sequence[str]
) -> None:
    """Also while they restore; and again."""
    draw = np.random.default_rng(count)
    first = trained(runs[:count], 0, living)
    ways = kinds(first)
    for together in (ways[number] for number in draw.choice(len(ways), tries, replace=False)):
        for rank, moment in zip(first, together, strict=True):
            leave(rank, moment)
        ranks, states = gone_on(runs[:count], first_attempt(count), together, 1, living)
        for rank, own in zip(ranks, states, strict=True):
            assert_whole(rank, own, living)
        ends = kinds(ranks)
        for end in ends:
            assert_in_step(end, ranks[0].step)
        again = ends[draw.integers(len(ends))]
        for rank, moment in zip(ranks, again, strict=True):
            leave(rank, moment)
        gone_on(runs[:count], states, again, 2, living)


def end_of(rank: Rank, held: Sequence[int]) -> Moment:
    """The first moment at which it holds these steps and has heard of nothing later."""
    return next(each for each in rank.diary.moments if [mark.step for mark in each.held] == [*held])


@pytest.mark.parametrize(
    ("held", "agreed"),
    [
        (([2, 3], [2, 3]), 3),  # both live
        (([2, 3], [2]), 2),  # the second was at step 3 still
        (([2], [2]), 2),  # both were
        (([2, 3], [3]), 3),  # the second was killed inside the copy
    ],
)
def test_what_is_live_and_what_is_a_copy_are_gone_on_from(
    runs: list[Path], held: tuple[list[int], ...], agreed: int
) -> None:
    living = EVERYWHERE[0]
    first = trained(runs[:2], 0, living)
    together = [end_of(rank, steps) for rank, steps in zip(first, held, strict=True)]
    for rank, moment in zip(first, together, strict=True):
        leave(rank, moment)
    ranks, _ = gone_on(runs[:2], first_attempt(2), together, 1, living)
    assert [rank.step for rank in ranks] == [agreed] * 2


@pytest.mark.parametrize("living", EVERYWHERE)
@pytest.mark.parametrize("held", [[2, 3], [2], [3]])
def test_a_phone_that_holds_nothing_gets_all_but_what_is_each_ones_own(
    runs: list[Path], held: list[int], living: Sequence[str]
) -> None:
    """Whether the other one has it live or as a copy; it loses nothing of it when it is killed over that."""
    first = trained(runs[:2], 0, living)
    nothing = Moment(bytes(len(first[0].diary.memory)), (), 0, 0, 0)
    together = (nothing, end_of(first[1], held))
    for rank, moment in zip(first, together, strict=True):
        leave(rank, moment)
    ranks, states = gone_on(runs[:2], first_attempt(2), together, 1, living)
    assert [rank.step for rank in ranks] == [held[-1]] * 2
    for rank, own in zip(ranks, states, strict=True):
        assert_whole(rank, own, living)
    for end in kinds(ranks):
        assert agree([moment.held for moment in end]) is not None


@pytest.mark.parametrize("living", EVERYWHERE)
def test_a_phone_that_was_away_for_long_does_not_bring_back_what_it_held(
    runs: list[Path], living: Sequence[str]
) -> None:
    first = trained(runs[:2], 0, living)
    away = end_of(first[0], [1, 2])
    leave(first[1], end_of(first[1], [1, 2]))
    (alone,) = trained(runs[1:2], 1, living)
    last = alone.diary.moments[-1]
    assert last.heard == 2 + STEPS
    together, states = (away, last), {step: after(step, 0) for step in range(1, last.heard + 1)}
    leave(first[0], away)
    ranks, (own, _) = gone_on(runs[:2], [states, states], together, 2, living)
    assert [rank.step for rank in ranks] == [last.heard] * 2
    assert_whole(ranks[0], own, living)
