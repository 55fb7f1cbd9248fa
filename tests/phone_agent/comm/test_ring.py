"""Schedules alone, and how they are waited for: any number of ranks, no network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent.comm import executor, schedule
from phone_agent.comm.schedule import Schedule
from phone_agent.core.ops import RingOp


def ring(position: int, world: int, length: int, segment: int) -> Schedule:
    return schedule.allreduce(position, schedule.cut(slice(0, length), world, segment))


@given(world=st.integers(2, 150), length=st.integers(0, 10_000), segment=st.integers(1, 500))
def test_what_a_rank_sends_is_what_its_neighbour_expects(world: int, length: int, segment: int) -> None:
    position = length % world
    chunks = schedule.cut(slice(0, length), world, segment)
    for kind in (schedule.allreduce, schedule.reduce_scatter, schedule.all_gather):
        own, right = kind(position, chunks), kind((position + 1) % world, chunks)
        assert list(own.sent) == [hop.piece for hop in right.hops]


@given(world=st.integers(2, 46), length=st.integers(50, 1000))
def test_no_rank_sends_more_than_it_must(world: int, length: int) -> None:
    sent = [
        sum(piece.stop - piece.start for piece in ring(position, world, length, 64).sent) for position in range(world)
    ]
    assert sum(sent) == 2 * (world - 1) * length
    assert max(sent) - min(sent) <= 2


@given(world=st.integers(2, 40), length=st.integers(0, 3000))
def test_no_piece_is_longer_than_it_says(world: int, length: int) -> None:
    own = ring(world // 2, world, length, 17)
    longest = max((hop.piece.stop - hop.piece.start for hop in own.hops), default=0)
    assert longest - 1 <= own.piece <= longest


@given(world=st.integers(2, 40), length=st.integers(0, 3000))
def test_the_kth_piece_taken_over_is_the_kth_sent(world: int, length: int) -> None:
    """What core/src/rings.c relies on to know when a piece may be written over."""
    own = ring(world // 2, world, length, 17)
    taken = [hop.piece for hop in own.hops if hop.op is RingOp.COPY]
    assert list(own.sent[: len(taken)]) == taken


@given(world=st.integers(2, 40), length=st.integers(0, 3000))
def test_every_element_is_encoded_once(world: int, length: int) -> None:
    """What error feedback relies on: one residual an element."""
    own = ring(world // 2, world, length, 17)
    encoded = [*own.first, *(hop.piece for hop in own.hops if hop.op is not RingOp.COPY)]
    assert sorted(index for piece in encoded for index in range(piece.start, piece.stop)) == list(range(length))


@given(world=st.integers(1, 40), length=st.integers(0, 3000))
def test_what_is_scattered_is_what_is_gathered(world: int, length: int) -> None:
    chunks = schedule.cut(slice(0, length), world, 17)
    for position in range(world):
        summed = {hop.piece.start for hop in schedule.reduce_scatter(position, chunks).hops if not hop.forward}
        assert summed == {piece.start for piece in schedule.all_gather(position, chunks).first}


@pytest.mark.parametrize(
    ("piece_bytes", "first", "longest"),
    [(0, 0.00005, 0.0004), (64 * 1024, 0.000131, 0.0004), (1024 * 1024, 0.0021, 0.0021)],
)
def test_who_waits_naps_and_longer_where_pieces_are_long(piece_bytes: int, first: float, longest: float) -> None:
    naps = [nap / 1e9 for nap in executor.naps(piece_bytes)]
    assert naps == pytest.approx([first, longest], rel=0.01)
