"""Training on several ranks with overlapped communication gives the same result as one process."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.contract.choices import BACKENDS
from phone_agent.device import affinity
from phone_agent.device.system import SystemPaths
from phone_agent.nn.packing import State
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.options import Options
from phone_agent.train.bucket_order import BucketTimes, order_chunks, split_buckets
from phone_agent.train.loop import TrainingLoop, split_micro_batches
from phone_agent.train.overlap import Overlap
from phone_agent.train.rank_steps import RankStep
from phone_agent.train.timeline import Timeline, clock_offset
from tests.phone_agent.thread_world import on_ranks
from tests.phone_agent.threaded_training import TEN, FixedAssignment, Setting, alone, network, together

DEEP = {"inception_v3", "resnet101", "resnet152"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in DEEP else name for name in TEN])
def test_ranks_train_like_one_process(name: str) -> None:
    """Unequal batches, one of them in two micro-batches. The results are bit-identical."""
    setting = Setting(network(name), (5, 2), largest=3)
    wanted = alone(setting)
    for overlapping in (True, False):
        for result in together(setting, overlapping=overlapping):
            np.testing.assert_allclose(result.losses, wanted.losses, rtol=1e-12)
            np.testing.assert_array_equal(result.state.values, wanted.state.values)
    assert len(wanted.losses) == setting.steps


@pytest.mark.parametrize("batches", [(2, 3, 1), (1, 2, 2, 1)])
def test_more_ranks_train_like_one_process(batches: tuple[int, ...]) -> None:
    """With more than two ranks the order of additions matters."""
    setting = Setting(network("mobilenet_v1"), batches)
    wanted = alone(setting)
    for result in together(setting):
        np.testing.assert_array_equal(result.state.values, wanted.state.values)


@pytest.mark.parametrize("name", BACKENDS)
def test_split_of_the_batch_does_not_change_the_result(name: str) -> None:
    """Without batch normalization, for any division of the global batch over any number of ranks."""
    graph = models.build("lenet", 10, (28, 28, 1))
    wanted = together(Setting(graph, (12,), backend=name))[0].losses
    for setting in (Setting(graph, (12,), largest=5, backend=name), Setting(graph, (1, 7, 4), largest=3, backend=name)):
        np.testing.assert_allclose(together(setting)[0].losses, wanted, rtol=2e-6)


def test_all_ranks_reduce_everything_once_per_step_in_the_same_order() -> None:
    setting = Setting(network("mobilenet_v1"), (2, 2, 1), steps=6, bucket_bytes=3000)
    results = together(setting)
    size = results[0].state.values.size
    count = len(results[0].reduced) // setting.steps
    assert count > 10
    assert [result.reduced for result in results[1:]] == [results[0].reduced] * 2
    for step in range(setting.steps):
        reduced = sorted(results[0].reduced[step * count : (step + 1) * count])
        assert [start for start, _ in reduced] == [0, *(end for _, end in reduced[:-1])]
        assert reduced[-1][1] == size


@given(batch=st.integers(0, 300), largest=st.integers(1, 300), first=st.integers(0, 300))
def test_micro_batches_are_few_and_even(batch: int, largest: int, first: int) -> None:
    parts = split_micro_batches(batch, largest, first)
    sizes = [part.stop - part.start for part in parts]
    assert [part.start for part in parts] == [first, *(part.stop for part in parts)][:-1]
    assert (sum(sizes), len(sizes)) == (batch, -(-batch // largest))
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(batch=st.integers(2, 300), largest=st.integers(1, 300))
def test_micro_batches_have_at_least_two_images_if_required(batch: int, largest: int) -> None:
    sizes = [part.stop - part.start for part in split_micro_batches(batch, largest, smallest=2)]
    assert (sum(sizes), min(sizes) >= 2) == (batch, True)
    assert max(sizes) <= max(largest, 3)
    if largest > 2:
        assert len(sizes) == -(-batch // largest)


times = st.lists(st.floats(0, 10), min_size=8, max_size=8)


@given(lengths=st.lists(st.integers(1, 100), min_size=1, max_size=8), chunk=st.integers(1, 200))
def test_chunks_cover_their_buckets(lengths: list[int], chunk: int) -> None:
    borders = [0, *accumulate(lengths)]
    queue = split_buckets([slice(*pair) for pair in pairwise(borders)], chunk * 4)
    assert [each.span.start for each in queue] == [0, *(each.span.stop for each in queue[:-1])]
    assert [each.span.stop for each in queue if each.last] == borders[1:]
    assert all(each.span.stop - each.span.start <= 1.5 * chunk + 1 for each in queue)


@given(ready=times, needed=times, reduce_s=times)
def test_every_chunk_is_reduced_once_and_the_last_of_a_bucket_last(
    ready: list[float], needed: list[float], reduce_s: list[float]
) -> None:
    queue = split_buckets([slice(2 * part, 2 * part + 2) for part in range(4)], 4)
    order = order_chunks(queue, BucketTimes(ready, needed, reduce_s))
    assert sorted(order, key=lambda chunk: chunk.number) == queue
    for bucket in range(4):
        assert [chunk.last for chunk in order if chunk.bucket == bucket] == [False, True]


def test_urgent_chunks_overtake_waiting_ones() -> None:
    """The first bucket (of the last layers) is large and ready first: it occupies the network until then."""
    queue = split_buckets([slice(0, 40), slice(40, 50), slice(50, 60)], 40)
    order = order_chunks(queue, BucketTimes(ready=[0, 1.5, 2.5], needed=[9, 5, 1], reduce_s=[1.0] * 6))
    assert [chunk.bucket for chunk in order] == [0, 0, 1, 2, 0, 0]


class BrokenError(Exception):
    pass


class Breaks:
    """Does nothing, but fails when asked for `what`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def reduce(self, where: slice, step: int) -> None:
        self._do("reduce", where, step)

    def update(self, part: slice, step: int) -> None:
        self._do("update", part, step)

    def exchange(self, step: int, own: RankStep) -> None:
        self._do("exchange", step, own)

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return row[None]

    def _do(self, what: str, *_: object) -> None:
        if what == self._what:
            raise BrokenError(what)


@pytest.mark.parametrize("what", ["reduce", "update", "exchange"])
@pytest.mark.parametrize("overlapping", [True, False])
def test_error_of_the_communication_thread_is_raised_in_the_loop(what: str, overlapping: bool) -> None:  # noqa: FBT001
    setting = Setting(models.build("lenet", 10, (28, 28, 1)), (2,))
    state = State(setting.graph, 0)
    options = Options(bucket_bytes=setting.bucket_bytes)
    executable = get_backend("cpu").compile(setting.graph, state, 2, options)
    overlap = Overlap(bucket_slices(state.packing, options.bucket_bytes), 20_000, Breaks(what), Timeline())
    loop = TrainingLoop(
        executable, setting.source(), overlap, FixedAssignment(setting.micro(0)), 2, state.gradients, overlapping
    )
    with pytest.raises(BrokenError, match=what):
        for _ in loop.run(1, 5):
            pass
    overlap.close()


class WhereAmI(Breaks):
    def __init__(self) -> None:
        super().__init__("nothing")
        self.cores: set[int] = set()

    def reduce(self, where: slice, step: int) -> None:
        del where, step
        self.cores = os.sched_getaffinity(0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_communication_runs_on_little_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread of its own, because affinity belongs to a thread."""
    for name in affinity.BLAS_THREADS:
        monkeypatch.setenv(name, "1")
    little, big = sorted(os.sched_getaffinity(0))[:2]
    paths = SystemPaths(sys=tmp_path, proc=tmp_path)
    for core, capacity in ((little, 100), (big, 1024)):
        (paths.cpus / f"cpu{core}").mkdir(parents=True)
        (paths.cpus / f"cpu{core}" / "cpu_capacity").write_text(str(capacity))
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(f"Cpus_allowed_list:\t{little},{big}\n")
    work = WhereAmI()

    def computing() -> set[int]:
        affinity.pin_to_big_cores(paths=paths)
        overlap = Overlap([slice(0, 4)], 16, work, Timeline())
        overlap.begin(1)
        overlap.update_all()
        overlap.close()
        return os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as other:
        assert other.submit(computing).result(60) == {big}
    assert work.cores == {little}


def test_overlap_can_be_closed_at_any_time() -> None:
    """Here while its thread waits for the second bucket."""
    before = set(threading.enumerate())
    overlap = Overlap([slice(0, 4), slice(4, 8)], 16, Breaks("nothing"), Timeline())
    overlap.begin(1)
    overlap.gradients_ready(0, 4)
    assert "communication" in {thread.name for thread in set(threading.enumerate()) - before}
    overlap.close()
    assert set(threading.enumerate()) == before


def test_clock_offset_of_threads_is_zero() -> None:
    for offset, error in on_ranks(3, clock_offset):
        assert abs(offset) <= error


def test_timeline_contains_all_kinds_of_spans(tmp_path: Path) -> None:
    results = together(Setting(models.build("lenet", 10, (28, 28, 1)), (4, 3), largest=3, steps=3))
    results[0].timeline.write(tmp_path / "timeline.jsonl", rank=0)
    header, *spans = [json.loads(line) for line in (tmp_path / "timeline.jsonl").read_text().splitlines()]
    assert header == {"rank": 0}
    assert {kind for kind, *_ in spans} >= {"data", "forward", "backward", "reduce", "update", "exchange"}
    assert {step for _, step, _, _ in spans} == {1, 2, 3}
    assert all(started <= ended for _, _, started, ended in spans)
    for thread in (("data", "forward", "backward", "wait"), ("reduce", "update", "exchange")):
        own = sorted((started, ended) for kind, _, started, ended in spans if kind in thread)
        assert all(before[1] <= after[0] for before, after in pairwise(own)), "a thread does one thing at a time"


def test_timeline_keeps_only_the_last_spans() -> None:
    timeline = Timeline(max_spans=3)
    for step in range(10):
        timeline.add("forward", step, step, step + 1)
    assert [span[1] for span in timeline.spans] == [7, 8, 9]
