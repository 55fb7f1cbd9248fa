"""Every algorithm with every wire format against numpy. Ranks are threads."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phone_agent.comm.autotune import CollectiveConfig
from phone_agent.comm.bench import SumPattern
from phone_agent.comm.collective import Collective, MpiAllreduce
from phone_agent.comm.executor import MpiFunctions
from phone_agent.comm.factory import FACTORIES, make_collective
from phone_agent.comm.hierarchical import Groups, HierarchicalAllreduce
from phone_agent.comm.reducer import ChunkwiseReducer, StatefulReducer, make_reducer
from phone_agent.comm.ring import RingAllreduce
from phone_agent.comm.wire import FP32, WIRE_FORMATS, Wire, wire_format
from phone_agent.comm.world import SingleProcessWorld, World
from phone_agent.contract.errors import AgentError
from phone_agent.contract.schema import DataSpec, RankSpec, RunSpec
from phone_agent.nn.graph import Parameter
from phone_agent.nn.packing import Packing
from tests.phone_agent.thread_world import AllgatherBarrier, Edge, ThreadWorld, on_ranks

Floats = NDArray[np.float32]
ROUNDED = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 1 / 250}  # of the largest number in a block
SCHEDULED = ("ring", "hierarchical")
worlds = st.lists(st.sampled_from("abcd"), min_size=1, max_size=7)  # the switch of each rank
lengths = st.one_of(st.integers(0, 12), st.integers(0, 700))
segments = st.integers(1, 90)


def made(algorithm: str, world: ThreadWorld, wire: Wire, switches: list[str], segment: int) -> Collective:
    """With short pieces, so that a few numbers make many pieces."""
    if world.size == 1 or algorithm not in SCHEDULED:
        return make_collective(algorithm, world, wire, switches)
    if algorithm == "ring" or len(set(switches)) == 1:
        return RingAllreduce(world, wire, 4 * segment)
    return HierarchicalAllreduce(world, wire, switches, 4 * segment)


def summed(algorithm: str, wire: str, rows: Floats, switches: list[str], segment: int) -> list[Floats]:
    def work(world: ThreadWorld) -> Floats:
        buffer: Floats = rows[world.rank].copy()
        made(algorithm, world, wire_format(wire), switches, segment).allreduce(buffer)
        return buffer

    return on_ranks(len(rows), work)


def numbers(world: int, length: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((world, length)).astype(np.float32)


def check(results: list[Floats], rows: Floats, wire: str) -> None:
    assert {result.tobytes() for result in results} == {results[0].tobytes()}
    largest = np.abs(rows).sum(axis=0).max(initial=0.0)
    exact = rows.sum(axis=0, dtype=np.float64)
    assert np.abs(results[0] - exact).max(initial=0.0) <= (len(rows) + 1) * ROUNDED[wire] * largest


@pytest.mark.parametrize("wire", WIRE_FORMATS)
@pytest.mark.parametrize("algorithm", SCHEDULED)
@settings(max_examples=40)
@given(switches=worlds, length=lengths, segment=segments, seed=st.integers(0, 99))
def test_every_rank_ends_with_the_sum(
    algorithm: str, wire: str, switches: list[str], length: int, segment: int, seed: int
) -> None:
    rows = numbers(len(switches), length, seed)
    check(summed(algorithm, wire, rows, switches, segment), rows, wire)


@pytest.mark.parametrize("algorithm", FACTORIES)
@settings(max_examples=20)
@given(switches=worlds, length=lengths, segment=segments)
def test_integers_are_summed_exactly(algorithm: str, switches: list[str], length: int, segment: int) -> None:
    rows = (numbers(len(switches), length, 7) * 100).round()
    for result in summed(algorithm, "fp32", rows, switches, segment):
        np.testing.assert_array_equal(result, rows.sum(axis=0))


@pytest.mark.parametrize("algorithm", SCHEDULED)
def test_overlapping_slices_do_not_mix(algorithm: str) -> None:
    """Long enough for several slices."""
    switches = ["a", "b", "a", "c", "a"]
    rows = numbers(5, 400_001, 1)
    for wire in ("fp32", "int8"):
        check(summed(algorithm, wire, rows, switches, 5000), rows, wire)


@pytest.mark.parametrize("wire", WIRE_FORMATS)
@pytest.mark.parametrize("algorithm", SCHEDULED)
def test_repeats_give_the_same_bits(algorithm: str, wire: str) -> None:
    """Rounded sums depend on the order of addition, which must be fixed."""
    rows = numbers(5, 1000, 3)
    results = [summed(algorithm, wire, rows, list("aabba"), 16)[0].tobytes() for _ in range(3)]
    assert len(set(results)) == 1


@pytest.mark.parametrize("algorithm", SCHEDULED)
def test_error_feedback_sends_what_int8_rounds_away(algorithm: str) -> None:
    """The mean over many rounds is closer to the exact sum than a single round."""
    rows = numbers(4, 600, 5)
    exact = rows.sum(axis=0, dtype=np.float64)
    buffers = [np.empty(600, np.float32) for _ in rows]

    def work(world: ThreadWorld) -> list[Floats]:
        chosen = made(algorithm, world, wire_format("int8"), list("aabb"), 64)
        results = []
        for _ in range(30):
            buffers[world.rank][...] = rows[world.rank]
            chosen.allreduce(buffers[world.rank])
            results.append(buffers[world.rank].copy())
        return results

    results = on_ranks(4, work)[0]
    alone = np.abs(results[0] - exact).mean()
    assert np.abs(np.mean(results, axis=0) - exact).mean() < alone / 5


@given(switches=worlds, length=st.integers(0, 300))
def test_every_number_crosses_between_one_rank_of_each_group(switches: list[str], length: int) -> None:
    places: list[int] = []
    for crossing in Groups(switches, 0).cross_ranges(slice(0, length)):
        assert [switches[owner] for owner in crossing.owners] == list(dict.fromkeys(switches))
        places += range(crossing.part.start, crossing.part.stop)
    assert places == list(range(length))


def test_an_uplink_carries_each_number_once_per_direction() -> None:
    """Two switches of three phones: the inner rings send 2/3 of the buffer twice, the outer ring 1/3 once each way."""

    def work(world: ThreadWorld) -> int:
        chosen = HierarchicalAllreduce(world, FP32, list("aaabbb"))
        chosen.allreduce(np.ones(600, np.float32))
        return chosen.traffic.bytes

    assert on_ranks(6, work) == [4 * (400 + 200 + 400)] * 6


class Planning(HierarchicalAllreduce):
    """Counts the slices it plans."""

    planned = 0

    def _rings(self, *slice_of: Any) -> Any:
        self.planned += 1
        return super()._rings(*slice_of)


@pytest.mark.parametrize("wire", WIRE_FORMATS)
def test_a_schedule_is_reused_for_buffers_of_the_same_length(wire: str) -> None:
    switches, lengths = list("aabbb"), (600, 77, 600, 77)
    rows = [numbers(5, length, seed) for seed, length in enumerate(lengths)]

    def work(world: ThreadWorld) -> tuple[int, list[Floats]]:
        chosen = Planning(world, wire_format(wire), switches, 64)
        buffers = [each[world.rank].copy() for each in rows]
        for buffer in buffers:
            chosen.allreduce(buffer)
        return chosen.planned, buffers

    expected = [summed("hierarchical", wire, each, switches, 16) for each in rows]
    for rank, (planned, buffers) in enumerate(on_ranks(5, work)):
        assert planned == 2, "one slice of each length"
        for place, buffer in enumerate(buffers):
            np.testing.assert_array_equal(buffer, expected[place][rank])


def test_traffic_and_time_spans_are_reported() -> None:
    def work(world: ThreadWorld) -> tuple[Collective, list[Any]]:
        chosen = RingAllreduce(world, FP32, 40)
        notes: list[Any] = []
        chosen.on_span = lambda *note: notes.append(note)
        chosen.allreduce(np.ones(100, np.float32))
        return chosen, notes

    chosen, notes = on_ranks(4, work)[0]
    assert chosen.traffic.bytes == 2 * 3 * 100 * 4 // 4
    assert chosen.traffic.seconds > 0
    assert {"reduce"} <= {what for what, _, _ in notes} <= {"send", "receive", "reduce"}
    assert sum(what == "reduce" for what, _, _ in notes) == 3 * 3, "storing a finished piece is not a reduction"
    assert all(started <= ended for _, started, ended in notes)


@pytest.mark.parametrize("wire", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("algorithm", SCHEDULED)
def test_ranks_wait_for_a_late_rank(algorithm: str, wire: str) -> None:
    """There are far more pieces than can be in flight, and more than the neighbors have slots for. The wait is reported
    as one span, however often the core returned meanwhile."""
    rows, last_is_there = numbers(4, 4000, 11), threading.Event()

    def work(world: ThreadWorld) -> tuple[Floats, list[float]]:
        buffer, waits = rows[world.rank].copy(), list[float]()
        if world.rank == 2:
            last_is_there.wait()
            time.sleep(0.4)
        chosen = made(algorithm, world, wire_format(wire), list("aabb"), 10)
        chosen.on_span = lambda what, started, ended: waits.append(ended - started if what == "receive" else 0.0)
        if world.rank == 3:
            last_is_there.set()
        chosen.allreduce(buffer)
        return buffer, waits

    results = on_ranks(4, work)
    check([buffer for buffer, _ in results], rows, wire)
    assert max(results[3][1]) > 0.2


def test_more_spans_are_reported_than_the_core_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phone_agent.comm.executor.MAX_SPANS", 4)
    rows = numbers(3, 3000, 1)

    def work(world: ThreadWorld) -> tuple[Floats, list[str]]:
        chosen, notes, buffer = RingAllreduce(world, FP32, 40), list[str](), rows[world.rank].copy()
        chosen.on_span = lambda what, *_: notes.append(what)
        chosen.allreduce(buffer)
        return buffer, notes

    results = on_ranks(3, work)
    check([buffer for buffer, _ in results], rows, "fp32")
    assert all(notes.count("reduce") == 2 * 100 for _, notes in results)


class AlarmError(Exception):
    pass


def test_signals_interrupt_a_blocked_allreduce() -> None:
    """A run is stopped while its neighbors are gone. The functions that the core calls succeed and do nothing."""
    nothing = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0

    class Gone(ThreadWorld):
        def mpi_functions(self) -> MpiFunctions:
            return MpiFunctions(nothing, nothing, nothing, 0, 0, RuntimeError)

    def wake(*_: Any) -> None:
        raise AlarmError

    edges: Any = defaultdict(lambda: Edge(threading.Event()))
    waiting, buffer = RingAllreduce(Gone(0, 2, edges, AllgatherBarrier(2)), FP32), np.ones(10, np.float32)
    previous = signal.signal(signal.SIGALRM, wake)
    try:
        started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(AlarmError):
            waiting.allreduce(buffer)
        assert time.monotonic() - started >= 0.4, "it did not wait"
    finally:
        signal.signal(signal.SIGALRM, previous)
    with pytest.raises(AgentError, match="interrupted: its messages may still be in flight"):
        waiting.allreduce(buffer)


@pytest.mark.parametrize("late", [0, 1])
def test_errors_of_the_transport_are_raised(late: int) -> None:
    def work(world: ThreadWorld) -> None:
        time.sleep(0.2 * (world.rank == late))
        RingAllreduce(world, FP32).allreduce(np.ones(10 if world.rank else 11, np.float32))

    with pytest.raises(AssertionError, match="send and receive differ in length"):
        on_ranks(2, work)


def test_only_contiguous_float32_is_accepted() -> None:
    def work(world: ThreadWorld) -> None:
        buffers: list[Any] = [np.ones(20, np.float32)[::2], np.ones(10)]
        for buffer in buffers:
            with pytest.raises(AgentError, match="contiguous float32"):
                RingAllreduce(world, FP32).allreduce(buffer)

    on_ranks(2, work)


def test_sum_check_detects_nan() -> None:
    numbers, buffer = SumPattern(3), np.empty(200_000, np.float32)
    numbers.fill(buffer, 1)
    buffer *= 3  # the sum over three ranks that all sent the pattern of rank 1
    assert numbers.check(buffer)[0] == 0.0
    buffer[150_000] = np.nan
    assert not numbers.check(buffer)[0] <= 1.0


def test_chunkwise_makes_one_call_per_parameter() -> None:
    calls: list[tuple[float, ...]] = []

    class Recorder(MpiAllreduce):
        def allreduce(self, buffer: Floats) -> None:
            calls.append(tuple(buffer))

    ChunkwiseReducer(Recorder(SingleProcessWorld()), [0, 3, 4]).reduce(
        np.arange(10, dtype=np.float32), slice(3, 10), step=1
    )
    assert calls == [(3.0,), (4.0, 5.0, 6.0, 7.0, 8.0, 9.0)]


PACKING = Packing([("w", Parameter("w", (100, 80), 1, 0.0)), ("b", Parameter("b", (80,), 1, 0.0))])
EVERYTHING = slice(0, PACKING.size)


def reducing(world: World, wire: str) -> StatefulReducer:
    ranks = tuple(RankSpec(rank, f"p{rank}", "sw1", rank, "", 8) for rank in range(world.size))
    spec = RunSpec("r", "lenet", DataSpec("synthetic", 10, (8, 8, 1), 10), ranks, 1)
    return make_reducer(spec, world, PACKING, CollectiveConfig("ring", wire, 0))


@pytest.mark.parametrize("wire", [*WIRE_FORMATS, "powersgd"])
def test_one_rank_has_the_same_persistent_buffers_as_several(wire: str) -> None:
    """Otherwise an in-memory checkpoint could not be used by more or fewer phones."""

    def shapes(world: World) -> list[tuple[str, int]]:
        remembered = reducing(world, wire).persistent_buffers(np.zeros(PACKING.size, np.float32))
        return [(name, buffer.size) for name, buffer in remembered.items()]

    assert shapes(SingleProcessWorld()) == on_ranks(2, shapes)[0]


@pytest.mark.parametrize("wire", ["int8", "powersgd"])
def test_residuals_of_several_ranks_are_flushed_by_a_single_rank(wire: str) -> None:
    rows = numbers(2, PACKING.size, 7)

    def one_step(world: World) -> dict[str, Floats]:
        gradients = rows[world.rank].copy()
        several = reducing(world, wire)
        remembered = several.persistent_buffers(gradients)
        several.reduce(gradients, EVERYTHING, step=1)
        return {name: buffer.copy() for name, buffer in remembered.items()}

    left = on_ranks(2, one_step)[0]
    assert left["residuals"].any()
    gradients = rows[0].copy()
    alone = reducing(SingleProcessWorld(), wire)
    remembered = alone.persistent_buffers(gradients)
    for name, buffer in remembered.items():
        buffer[...] = left[name]
    alone.reduce(gradients, EVERYTHING, step=2)
    np.testing.assert_array_equal(gradients, rows[0] + left["residuals"])
    assert not remembered["residuals"].any(), "flushed only once"
    assert all(np.array_equal(remembered[name], left[name]) for name in left if name != "residuals")
    alone.reduce(gradients, EVERYTHING, step=3)
    np.testing.assert_array_equal(gradients, rows[0] + left["residuals"])


def test_invalid_requests_are_rejected() -> None:
    with pytest.raises(
        AgentError, match="unknown allreduce algorithm 'star'; choose from: ring, hierarchical, mpi, chunkwise"
    ):
        make_collective("star", SingleProcessWorld())
    with pytest.raises(AgentError, match="unknown wire format 'fp8'; choose from: fp32"):
        wire_format("fp8")

    def mixed(world: ThreadWorld) -> None:
        with pytest.raises(AgentError, match="MPI_Allreduce supports only fp32, not fp16"):
            make_collective("mpi", world, wire_format("fp16"))
        with pytest.raises(AgentError, match="got groups for 1 ranks, but there are 2 ranks"):
            make_collective("hierarchical", world, FP32, ["a"])

    on_ranks(2, mixed)
