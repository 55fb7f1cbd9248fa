"""The ring without MPI: any number of ranks as threads, over a transport that punishes touching data too early."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phone_agent.comm.ring import RingAllreduce
from phone_agent.comm.schedule import ring

PATIENCE_S = 120
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


class Transfer:
    def __init__(self, data: NDArray[Any]) -> None:
        self.data = data
        self.done = threading.Event()

    def wait(self) -> None:
        assert self.done.wait(PATIENCE_S), "nobody met this transfer"


class Edge:
    """From one rank to the next. A send lends its array, which is copied when a receive meets it, as MPI may do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sends: deque[Transfer] = deque()
        self._receives: deque[Transfer] = deque()

    def send(self, data: NDArray[Any]) -> Transfer:
        return self._add(self._sends, data)

    def receive(self, into: NDArray[Any]) -> Transfer:
        into[...] = 99  # what a receive is given belongs to it from now on
        return self._add(self._receives, into)

    def _add(self, waiting: deque[Transfer], data: NDArray[Any]) -> Transfer:
        transfer = Transfer(data)
        with self._lock:
            waiting.append(transfer)
            while self._sends and self._receives:
                sent, received = self._sends.popleft(), self._receives.popleft()
                received.data[...] = sent.data
                sent.done.set()
                received.done.set()
        return transfer


class Neighbours:
    def __init__(self, left: Edge, right: Edge) -> None:
        self.send, self.receive = right.send, left.receive


def allreduce_in_threads(buffers: list[NDArray[Any]], segment_bytes: int) -> list[RingAllreduce]:
    world = len(buffers)
    edges = [Edge() for _ in range(world)]  # edge r leads from rank r - 1 to rank r
    rings = [
        RingAllreduce(rank, world, Neighbours(edges[rank], edges[(rank + 1) % world]), segment_bytes)
        for rank in range(world)
    ]
    with ThreadPoolExecutor(world) as ranks:
        for done in [ranks.submit(ring.allreduce, buffer) for ring, buffer in zip(rings, buffers, strict=True)]:
            done.result(PATIENCE_S)
    return rings


@unhurried
@given(world=st.integers(1, 9), length=st.integers(0, 70), segment=st.integers(1, 9))
def test_every_rank_ends_with_the_sum(world: int, length: int, segment: int) -> None:
    values = np.arange(world * length, dtype=np.float64).reshape(world, length) ** 2 % 1001
    expected = values.sum(axis=0)
    buffers = [row.astype(np.float32) for row in values]
    allreduce_in_threads(buffers, 4 * segment)
    for buffer in buffers:
        np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_ranks_and_all_repeats_agree_to_the_bit(dtype: type) -> None:
    """Rounded sums depend on the order of addition: it must be one and the same."""
    results = set()
    for _ in range(3):
        buffers: list[NDArray[Any]] = [
            np.random.default_rng(rank).standard_normal(1000).astype(dtype) for rank in range(5)
        ]
        allreduce_in_threads(buffers, 64)
        results |= {buffer.tobytes() for buffer in buffers}
    assert len(results) == 1


@unhurried
@given(world=st.integers(2, 150), length=st.integers(0, 10_000), segment=st.integers(1, 500))
def test_what_a_rank_sends_is_what_its_neighbour_expects(world: int, length: int, segment: int) -> None:
    rank = length % world
    own, right = ring(rank, world, length, segment), ring((rank + 1) % world, world, length, segment)
    sent = [*own.first, *(hop.piece for hop in own.hops if hop.forward)]
    assert sent == [hop.piece for hop in right.hops]


@unhurried
@given(world=st.integers(2, 46), length=st.integers(50, 1000))
def test_no_rank_sends_more_than_it_must(world: int, length: int) -> None:
    sent = [ring(rank, world, length, 64).sent for rank in range(world)]
    assert sum(sent) == 2 * (world - 1) * length
    assert max(sent) - min(sent) <= 2


@unhurried
@given(world=st.integers(2, 40), length=st.integers(0, 3000))
def test_the_kth_piece_written_over_is_the_kth_sent(world: int, length: int) -> None:
    """What comm.ring relies on to know when a piece may be written over."""
    schedule = ring(world // 2, world, length, 17)
    sent = [*schedule.first, *(hop.piece for hop in schedule.hops if hop.forward)]
    taken = [hop.piece for hop in schedule.hops if not hop.add]
    assert sent[: len(taken)] == taken


def test_traffic_is_counted() -> None:
    buffers = [np.ones(100, np.float32) for _ in range(4)]
    first, *_ = allreduce_in_threads(buffers, 40)
    assert first.traffic.calls == 1
    assert first.traffic.bytes == 2 * 3 * 100 * 4 // 4
    assert first.traffic.seconds > 0
