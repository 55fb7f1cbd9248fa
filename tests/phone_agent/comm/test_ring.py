"""Ring schedules and polling intervals, for any number of ranks, without a network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent.comm import executor, schedule
from phone_agent.comm.schedule import Schedule
from phone_agent.core.ops import RingOp


def ring(position: int, world: int, length: int, segment: int) -> Schedule:
    return schedule.allreduce(position, schedule.make_chunks(slice(0, length), world, segment))


@given(world=st.integers(2, 150), length=st.integers(0, 10_000), segment=st.integers(1, 500))
def test_a_rank_sends_what_its_neighbor_expects(world: int, length: int, segment: int) -> None:
    position = length % world
    chunks = schedule.make_chunks(slice(0, length), world, segment)
    for kind in (schedule.allreduce, schedule.reduce_scatter, schedule.all_gather):
        own, right = kind(position, chunks), kind((position + 1) % world, chunks)
        assert list(own.sent) == [hop.piece for hop in right.hops]


@given(world=st.integers(2, 46), length=st.integers(50, 1000))
def test_no_rank_sends_more_than_the_lower_bound(world: int, length: int) -> None:
    sent = [
        sum(piece.stop - piece.start for piece in ring(position, world, length, 64).sent) for position in range(world)
    ]
    assert sum(sent) == 2 * (world - 1) * length
    assert max(sent) - min(sent) <= 2


@given(world=st.integers(2, 40), length=st.integers(0, 3000))
def test_no_piece_is_longer_than_piece_length(world: int, length: int) -> None:
    own = ring(world // 2, world, length, 17)
    longest = max((hop.piece.stop - hop.piece.start for hop in own.hops), default=0)
    assert longest - 1 <= own.piece_length <= longest


@given(world=st.integers(2, 40), length=st.integers(0, 3000))
def test_the_kth_stored_piece_is_the_kth_sent(world: int, length: int) -> None:
    """core/src/ring_allreduce.c relies on this to know when a piece may be overwritten."""
    own = ring(world // 2, world, length, 17)
    taken = [hop.piece for hop in own.hops if hop.op is RingOp.COPY]
    assert list(own.sent[: len(taken)]) == taken


@given(world=st.integers(2, 40), length=st.integers(0, 3000))
def test_every_element_is_encoded_once(world: int, length: int) -> None:
    """Error feedback relies on this: one residual per element."""
    own = ring(world // 2, world, length, 17)
    encoded = [*own.first, *(hop.piece for hop in own.hops if hop.op is not RingOp.COPY)]
    assert sorted(index for piece in encoded for index in range(piece.start, piece.stop)) == list(range(length))


@given(world=st.integers(1, 40), length=st.integers(0, 3000))
def test_all_gather_starts_with_what_reduce_scatter_finished(world: int, length: int) -> None:
    chunks = schedule.make_chunks(slice(0, length), world, 17)
    for position in range(world):
        summed = {hop.piece.start for hop in schedule.reduce_scatter(position, chunks).hops if not hop.forward}
        assert summed == {piece.start for piece in schedule.all_gather(position, chunks).first}


@pytest.mark.parametrize(
    ("piece_bytes", "first", "longest"),
    [(0, 0.00005, 0.0004), (64 * 1024, 0.000131, 0.0004), (1024 * 1024, 0.0021, 0.0021)],
)
def test_polling_intervals_grow_with_piece_size(piece_bytes: int, first: float, longest: float) -> None:
    intervals = [interval / 1e9 for interval in executor.poll_intervals_ns(piece_bytes)]
    assert intervals == pytest.approx([first, longest], rel=0.01)
