"""Ranks may be killed at any moment, each at a different one. These tests try all of them: between any two stores to
the header and in the middle of every copy, on every rank, combined with every point that the others may have reached.
"""

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

from orchestrator.supervisor.resume_point import elect_step
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.memckpt import client, header, replica
from phone_agent.memckpt.checkpointer import PER_RANK, STATISTICS, MemoryCheckpointer, StateLostError
from phone_agent.memckpt.memfd import allocate
from phone_agent.memckpt.server import serve
from tests.phone_agent.thread_world import ThreadWorld, on_ranks

Buffers = dict[str, NDArray[np.float32]]
NAMES = ("values", "momenta", "second_momenta", STATISTICS, "residuals")
LENGTH = 6
STEPS = 3  # of an attempt
MAPPINGS = [("values", "momenta"), ("momenta",), ()]  # buffers that live in the server's memory


def state_after(step: int, rank: int) -> Buffers:
    """A training state. It differs between ranks, as it does after local steps."""
    return {name: np.full(LENGTH, 100 * step + 10 * rank + number, np.float32) for number, name in enumerate(NAMES)}


@dataclass(frozen=True)
class Moment:
    """What a rank leaves behind if it is killed now. `entered` and `left` count its exchanges with the others;
    `confirmed` is the last step that it knows all ranks have committed."""

    memory: bytes
    held: tuple[CommittedStep, ...]
    entered: int
    left: int
    confirmed: int

    @property
    def kind(self) -> tuple[Any, ...]:
        return self.held, self.entered, self.left, self.confirmed


@dataclass
class Recording:
    """All moments of one rank in one attempt."""

    run: Path
    like: Buffers
    mapped: Sequence[str]
    confirmed: int
    moments: list[Moment] = field(default_factory=list)
    entered: int = 0
    left: int = 0

    def __post_init__(self) -> None:
        connection = client.CheckpointClient(self.run)
        descriptor, _ = connection.open(replica.signature(self.like, self.mapped), replica.size(self.like))
        self.memory = mmap.mmap(descriptor, replica.size(self.like))
        os.close(descriptor)
        connection.close()

    def record(self) -> None:
        held = tuple(header.committed_steps(header.read(self.memory)))
        self.moments.append(Moment(self.memory[:], held, self.entered, self.left, self.confirmed))


class CurrentRecording(threading.local):
    recording: Recording | None = None

    def record(self) -> None:
        if self.recording is not None:
            self.recording.record()


CURRENT = CurrentRecording()


class RecordingStruct:
    """Records a moment after each store to the header."""

    def __init__(self, number: Any) -> None:
        self.size, self.unpack_from, self._number = number.size, number.unpack_from, number

    def pack_into(self, *arguments: Any) -> None:
        self._number.pack_into(*arguments)
        CURRENT.record()


@pytest.fixture(autouse=True)
def _record_all_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    def copy_in_halves(into: NDArray[Any], source: NDArray[Any]) -> None:
        middle = into.size // 2
        for part in (slice(middle), slice(middle, None)):
            into[part] = source[part]
            CURRENT.record()

    monkeypatch.setattr(header, "_INT64", RecordingStruct(header._INT64))
    monkeypatch.setattr(np, "copyto", copy_in_halves)


class RecordingWorld(ThreadWorld):
    """Records a moment before and after each exchange."""

    def __init__(self, world: ThreadWorld, recording: Recording) -> None:
        super().__init__(world.rank, world.size, world._edges, world._sums)
        self._recording = recording

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        self._recording.entered += 1
        self._recording.record()
        rows = super().allgather(row)
        self._recording.left += 1
        self._recording.record()
        return rows

    def allreduce(self, buffer: NDArray[np.float32]) -> None:
        buffer[...] = self.allgather(buffer.astype(np.float64)).sum(axis=0)
        self._recording.record()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[Path]]:
    """Run directories of three phones, each with a running server."""
    made = [tmp_path / str(rank) for rank in range(3)]
    servers = []
    for run in made:
        run.mkdir()
        servers.append(threading.Thread(target=serve, args=(run,)))
        servers[-1].start()
    while not all(map(client.is_running, made)):
        time.sleep(0.01)
    yield made
    for run, server in zip(made, servers, strict=True):
        client.stop_server(run)
        server.join()


class Rank:
    """Runs steps as the communication and compute threads do. `restored` is the state it resumes from."""

    def __init__(
        self, world: ThreadWorld, run: Path, attempt: int, mapped: Sequence[str], resume_from: CommittedStep | None
    ) -> None:
        self.buffers = state_after(0, world.rank)
        self.step = resume_from.step if resume_from else 0
        self.recording = CURRENT.recording = Recording(run, self.buffers, mapped, self.step)
        self._world = RecordingWorld(world, self.recording)
        self.checkpointer = MemoryCheckpointer(
            run, attempt, resume_from, self.buffers, mapped, self._world, pytest.fail
        )
        for name, live in self.checkpointer.live.items():
            if not self.checkpointer.restores:
                live[...] = self.buffers[name]
            self.buffers[name] = live
        self.checkpointer.begin(self.step, self.buffers, self._world.allreduce)
        self.restored = {name: buffer.copy() for name, buffer in self.buffers.items()}
        self.recording.record()

    def train(self, steps: int) -> None:
        for step in range(self.step + 1, self.step + steps + 1):
            self._run_step(step, state_after(step, self._world.rank))
        self.checkpointer.close()
        CURRENT.recording = None

    def _run_step(self, step: int, new: Buffers) -> None:
        self._set(STATISTICS, new)
        self.checkpointer.capture_statistics(step)
        self.buffers[STATISTICS][...] = -1  # the next forward pass is already changing them
        for name in ("residuals", "values", "momenta", "second_momenta"):
            self._set(name, new)
        self.checkpointer.commit(step)
        self._world.allgather(np.zeros(1))
        self.recording.confirmed = step
        self.checkpointer.take_snapshot(step)

    def _set(self, name: str, new: Buffers) -> None:
        np.copyto(self.buffers[name], new[name])


def run_attempt(
    runs: Sequence[Path], attempt: int, mapped: Sequence[str], resume_from: CommittedStep | None = None
) -> list[Rank]:
    """Run the steps of one attempt, one rank per run directory."""

    def work(world: ThreadWorld) -> Rank:
        rank = Rank(world, runs[world.rank], attempt, mapped, resume_from)
        rank.train(STEPS)
        return rank

    return on_ranks(len(runs), work, timeout_s=60)


def is_possible(moments: Sequence[Moment]) -> bool:
    """No rank leaves an exchange before all ranks have entered it."""
    return max(moment.left for moment in moments) <= min(moment.entered for moment in moments)


def distinct_ends(ranks: Sequence[Rank]) -> list[tuple[Moment, ...]]:
    """All combinations of moments at which ranks may be killed, without those that look the same to other ranks."""
    each = [{moment.kind: moment for moment in rank.recording.moments}.values() for rank in ranks]
    return [moments for moments in product(*each) if is_possible(moments)]


def assert_consistent(rank: Rank, states: dict[int, Buffers], mapped: Sequence[str]) -> None:
    """Whenever the rank is killed, each committed step has the state that belongs to it."""
    memfd = allocate(replica.size(rank.buffers), "test")
    CURRENT.recording = None
    memory = mmap.mmap(memfd.descriptor, memfd.size)
    stored = replica.Replica(memfd.descriptor, rank.buffers, mapped)
    os.close(memfd.descriptor)
    for content, committed in ((each.memory, step) for each in rank.recording.moments for step in each.held):
        memory[:] = content
        expected = states[committed.step]
        if header.read(memory)[header.LIVE] == committed:
            assert all((live == expected[name]).all() for name, live in stored.live.items()), f"live as {committed}"
        found = {name: np.empty_like(buffer) for name, buffer in rank.buffers.items()}
        stored.ensure_snapshot(committed)
        stored.load(committed, found)
        for name in NAMES:
            np.testing.assert_array_equal((found | stored.live)[name], expected[name], f"{name} of {committed}")


def assert_no_step_lost(moments: Sequence[Moment], start: int) -> None:
    """Wherever the ranks of an attempt that resumed from step `start` are killed, no confirmed step is lost. And once
    all ranks have committed a step of this attempt, each resumes from its own state."""
    elected = elect_step([moment.held for moment in moments])
    confirmed = max(moment.confirmed for moment in moments)
    if elected is None:
        assert confirmed == 0
        return
    assert confirmed <= elected.step <= confirmed + 1
    newest = elected.attempt
    all_have = all(committed.attempt == newest for moment in moments for committed in moment.held[-1:]) and all(
        moment.held for moment in moments
    )
    assert all_have or confirmed == start
    assert not all_have or all(elected in moment.held for moment in moments)


def restore_memory(rank: Rank, moment: Moment) -> None:
    rank.recording.memory[:] = moment.memory


def resume(
    runs: Sequence[Path], before: Sequence[dict[int, Buffers]], moments: Sequence[Moment], attempt: int, mapped: Any
) -> tuple[list[Rank], list[dict[int, Buffers]]]:
    """Run the next attempt after the ranks were killed; returns its ranks and the states that they may hold."""
    elected = elect_step([moment.held for moment in moments])
    ranks, states = run_attempt(runs, attempt, mapped, elected), []
    holders = [number for number, moment in enumerate(moments) if elected in moment.held]
    for number, rank in enumerate(ranks):
        own = {step: state_after(step, number) for step in range(rank.step + 1, rank.step + STEPS + 1)}
        if elected is None:
            assert rank.step == 0
            states.append(own)
            continue
        assert rank.step == elected.step
        whose = number if number in holders else holders[0]
        expected = dict(before[whose][rank.step])
        if whose != number:
            expected |= {name: np.zeros(LENGTH, np.float32) for name in PER_RANK}
        for name in NAMES:
            np.testing.assert_array_equal(rank.restored[name], expected[name], f"{name} of rank {number}")
        states.append(before[number] | {rank.step: expected} | own)
    return ranks, states


def first_attempt(count: int) -> list[dict[int, Buffers]]:
    return [{step: state_after(step, rank) for step in range(1, STEPS + 1)} for rank in range(count)]


@pytest.mark.parametrize("mapped", MAPPINGS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_ranks_killed_at_any_moment_of_training_hold_a_common_step(
    runs: list[Path], count: int, mapped: Sequence[str]
) -> None:
    ranks, states = run_attempt(runs[:count], 0, mapped), first_attempt(count)
    for rank, own in zip(ranks, states, strict=True):
        assert_consistent(rank, own, mapped)
    ends = distinct_ends(ranks)
    assert len({tuple(moment.held for moment in moments) for moments in ends}) >= 2 * STEPS
    for moments in ends:
        assert_no_step_lost(moments, 0)


@pytest.mark.parametrize("mapped", MAPPINGS)
@pytest.mark.parametrize(("count", "tries"), [(2, 40), (3, 20)])
def test_attempts_killed_at_any_moment_resume_exactly(
    runs: list[Path], count: int, tries: int, mapped: Sequence[str]
) -> None:
    """Including while they restore, and repeatedly."""
    draw = np.random.default_rng(count)
    first = run_attempt(runs[:count], 0, mapped)
    first_ends = distinct_ends(first)
    for moments in (first_ends[number] for number in draw.choice(len(first_ends), tries, replace=False)):
        for rank, moment in zip(first, moments, strict=True):
            restore_memory(rank, moment)
        ranks, states = resume(runs[:count], first_attempt(count), moments, 1, mapped)
        for rank, own in zip(ranks, states, strict=True):
            assert_consistent(rank, own, mapped)
        ends = distinct_ends(ranks)
        for end in ends:
            assert_no_step_lost(end, ranks[0].step)
        again = ends[draw.integers(len(ends))]
        for rank, moment in zip(ranks, again, strict=True):
            restore_memory(rank, moment)
        resume(runs[:count], states, again, 2, mapped)


def first_moment(rank: Rank, held: Sequence[int]) -> Moment:
    """The first moment at which the rank holds exactly these steps."""
    return next(each for each in rank.recording.moments if [committed.step for committed in each.held] == [*held])


@pytest.mark.parametrize(
    ("held", "elected"),
    [
        (([2, 3], [2, 3]), 3),  # both have committed it
        (([2, 3], [2]), 2),  # the second was still computing step 3
        (([2], [2]), 2),  # both were
        (([2, 3], [3]), 3),  # the second was killed while taking the snapshot
    ],
)
def test_resumes_from_live_buffers_and_from_snapshots(
    runs: list[Path], held: tuple[list[int], ...], elected: int
) -> None:
    mapped = MAPPINGS[0]
    first = run_attempt(runs[:2], 0, mapped)
    moments = [first_moment(rank, steps) for rank, steps in zip(first, held, strict=True)]
    for rank, moment in zip(first, moments, strict=True):
        restore_memory(rank, moment)
    ranks, _ = resume(runs[:2], first_attempt(2), moments, 1, mapped)
    assert [rank.step for rank in ranks] == [elected] * 2


@pytest.mark.parametrize("mapped", MAPPINGS)
@pytest.mark.parametrize("held", [[2, 3], [2], [3]])
def test_phone_without_state_receives_all_but_per_rank_state(
    runs: list[Path], held: list[int], mapped: Sequence[str]
) -> None:
    """Whether the other phone has it live or as a snapshot, it loses nothing if it is killed meanwhile."""
    first = run_attempt(runs[:2], 0, mapped)
    nothing = Moment(bytes(len(first[0].recording.memory)), (), 0, 0, 0)
    moments = (nothing, first_moment(first[1], held))
    for rank, moment in zip(first, moments, strict=True):
        restore_memory(rank, moment)
    ranks, states = resume(runs[:2], first_attempt(2), moments, 1, mapped)
    assert [rank.step for rank in ranks] == [held[-1]] * 2
    for rank, own in zip(ranks, states, strict=True):
        assert_consistent(rank, own, mapped)
    for end in distinct_ends(ranks):
        assert elect_step([moment.held for moment in end]) is not None


@pytest.mark.parametrize("mapped", MAPPINGS)
def test_outdated_state_of_a_returning_phone_is_ignored(runs: list[Path], mapped: Sequence[str]) -> None:
    first = run_attempt(runs[:2], 0, mapped)
    away = first_moment(first[0], [1, 2])
    restore_memory(first[1], first_moment(first[1], [1, 2]))
    (alone,) = run_attempt(runs[1:2], 1, mapped, CommittedStep(2, 0))
    last = alone.recording.moments[-1]
    assert last.confirmed == 2 + STEPS
    moments, states = (away, last), {step: state_after(step, 0) for step in range(1, last.confirmed + 1)}
    restore_memory(first[0], away)
    ranks, (own, _) = resume(runs[:2], [states, states], moments, 2, mapped)
    assert [rank.step for rank in ranks] == [last.confirmed] * 2
    assert_consistent(ranks[0], own, mapped)


@pytest.mark.parametrize("mapped", MAPPINGS)
def test_older_memory_is_discarded_for_a_loaded_state(runs: list[Path], mapped: Sequence[str]) -> None:
    """Phones hold step 3; the attempt starts from a checkpoint file of step 7, which all of them hold from then on."""
    run_attempt(runs[:2], 0, mapped)

    def load(world: ThreadWorld) -> list[CommittedStep]:
        buffers = state_after(7, world.rank)
        checkpointer = MemoryCheckpointer(runs[world.rank], 1, None, buffers, mapped, world, pytest.fail)
        assert max(client.held_steps(runs[world.rank]), default=CommittedStep(0, 0)).step <= STEPS
        for name, live in checkpointer.live.items():
            live[...] = buffers[name]
            buffers[name] = live
        checkpointer.begin(7, buffers, lambda _: None)
        checkpointer.close()
        return client.held_steps(runs[world.rank])

    assert on_ranks(2, load, timeout_s=60) == [[CommittedStep(7, 1)]] * 2
    ranks = run_attempt(runs[:2], 2, mapped, CommittedStep(7, 1))
    for number, rank in enumerate(ranks):
        for name in NAMES:
            np.testing.assert_array_equal(rank.restored[name], state_after(7, number)[name])


def test_the_same_step_of_another_attempt_is_not_used(runs: list[Path]) -> None:
    """The first phone was cut off at step 3; the other one computed steps 2 and 3 again, from an older state."""
    mapped = MAPPINGS[0]
    first = run_attempt(runs[:2], 0, mapped)
    restore_memory(first[1], first_moment(first[1], [1]))
    (alone,) = run_attempt(runs[1:2], 1, mapped, CommittedStep(1, 0))
    restore_memory(alone, first_moment(alone, [3]))
    ranks = run_attempt(runs[:2], 2, mapped, CommittedStep(3, 1))
    expected = state_after(3, 0) | {name: np.zeros(LENGTH, np.float32) for name in PER_RANK}
    for rank, wanted in zip(ranks, (expected, state_after(3, 0)), strict=True):
        for name in NAMES:
            np.testing.assert_array_equal(rank.restored[name], wanted[name])


def test_an_attempt_does_not_start_from_nothing_if_its_state_is_gone(runs: list[Path]) -> None:
    first = run_attempt(runs[:2], 0, MAPPINGS[0])
    for rank in first:
        restore_memory(rank, Moment(bytes(len(rank.recording.memory)), (), 0, 0, 0))

    def start(world: ThreadWorld) -> None:
        buffers = state_after(0, world.rank)
        with pytest.raises(StateLostError, match="no phone holds step 3"):
            MemoryCheckpointer(runs[world.rank], 1, CommittedStep(3, 0), buffers, MAPPINGS[0], world, pytest.fail)

    on_ranks(2, start, timeout_s=60)
