"""PowerSGD against numpy: the sums, the residuals, and that nothing is lost for good."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phone_agent.comm.autotune import CollectiveConfig
from phone_agent.comm.collective import TrafficStats
from phone_agent.comm.executor import SpanCallback
from phone_agent.comm.factory import make_collective
from phone_agent.comm.powersgd import (
    RANK,
    RNG_STREAM,
    SUPPORTED_RANKS,
    WIRE,
    PowerSgd,
    PowerSgdMessageSizes,
    split_matrices,
)
from phone_agent.comm.reducer import make_reducer
from phone_agent.comm.world import SingleProcessWorld
from phone_agent.contract import rng
from phone_agent.contract.errors import AgentError
from phone_agent.contract.schema import CommunicationSpec, DataSpec, RankSpec, RunSpec
from phone_agent.nn.graph import Parameter
from phone_agent.nn.packing import Packing
from phone_agent.nn.plan.buckets import trainable_bucket_slices
from tests.phone_agent.thread_world import ThreadWorld, on_ranks

no_deadline = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
Floats = NDArray[np.float32]
PHONES = tuple(RankSpec(rank, f"p{rank}", "sw1", rank, "10.0.0.1", 8) for rank in range(3))


class ExactSum:
    """Sums over threads in rank order, in double precision, so that all ranks get the same bits."""

    def __init__(self, world: int) -> None:
        self.sent: list[int] = []
        self._rows: list[Any] = [None] * world
        self._met = threading.Barrier(world, timeout=60)

    def sum(self, rank: int, buffer: Floats) -> None:
        self._rows[rank] = buffer.copy()
        if self._met.wait() == 0:
            self.sent.append(buffer.size)
        total = np.sum([row.astype(np.float64) for row in self._rows], axis=0)
        self._met.wait()
        buffer[...] = total


class ExactCollective:
    on_span: SpanCallback | None = None

    def __init__(self, exact_sum: ExactSum, rank: int) -> None:
        self.traffic = TrafficStats()
        self._exact_sum, self._rank = exact_sum, rank

    def allreduce(self, buffer: Floats) -> None:
        self._exact_sum.sum(self._rank, buffer)


class Ranks:
    def __init__(self, shapes: list[tuple[int, ...]], world: int, rank: int, in_full: int = 0) -> None:
        self.packing = Packing(
            [(str(index), Parameter(str(index), shape, 1, 0.0)) for index, shape in enumerate(shapes)]
        )
        self.exact_sum = ExactSum(world)
        self.gradients = [np.zeros(self.packing.size, np.float32) for _ in range(world)]
        self._step = 0
        self._reducers = [
            PowerSgd(ExactCollective(self.exact_sum, each), self.packing, rank, uncompressed=in_full)
            for each in range(world)
        ]

    def step(self, values: NDArray[Any], part: slice = slice(None)) -> NDArray[np.float64]:
        """The result, which is the same on all ranks."""
        self._step += 1
        for gradients, row in zip(self.gradients, values, strict=True):
            gradients[...] = row
        pairs = zip(self._reducers, self.gradients, strict=True)
        with ThreadPoolExecutor(len(self.gradients)) as threads:
            for done in [threads.submit(each.reduce, gradients, part, self._step) for each, gradients in pairs]:
                done.result(60)
        assert len({gradients[part].tobytes() for gradients in self.gradients}) == 1
        return self.gradients[0].astype(np.float64)


def _normal(seed: int, *shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(shape)


def test_a_matrix_of_low_rank_is_sent_exactly() -> None:
    ranks = Ranks([(40, 30)], 3, 2)
    left, right = _normal(0, 3, 40, 2), _normal(1, 2, 30)
    values = (left @ right).reshape(3, -1)
    np.testing.assert_allclose(ranks.step(values), values.sum(axis=0), atol=1e-4)


def test_steps_match_the_paper() -> None:
    """In double precision, with numpy's QR, on the sum of the gradients and residuals of all ranks."""
    rows, columns, rank = 50, 60, 4
    ranks = Ranks([(rows, columns)], 3, rank)
    right = np.stack([2 * rng.uniform((0, RNG_STREAM, 0, draw), columns) - 1 for draw in range(1, rank + 1)])
    residual = np.zeros((rows, columns))
    for step in range(6):
        values = _normal(step, 3, rows, columns) * 2.0 ** -np.arange(columns)
        matrix = values.sum(axis=0) + residual
        left, _ = np.linalg.qr(matrix @ right.T)
        right = left.T @ matrix
        residual = matrix - left @ right
        np.testing.assert_allclose(ranks.step(values.reshape(3, -1)), (left @ right).reshape(-1), atol=1e-4)


@no_deadline
@given(
    world=st.integers(1, 4),
    shapes=st.lists(st.lists(st.integers(1, 24), min_size=1, max_size=4).map(tuple), min_size=1, max_size=5),
    rank=st.sampled_from(SUPPORTED_RANKS),
    seed=st.integers(0, 1000),
)
def test_sums_plus_residuals_are_the_exact_sums(
    world: int, shapes: list[tuple[int, ...]], rank: int, seed: int
) -> None:
    ranks = Ranks(shapes, world, rank)
    size = ranks.packing.size
    meant, sent = np.zeros(size), np.zeros(size)
    for step in range(3):
        values = _normal(seed + step, world, size).astype(np.float32)
        meant += values.sum(axis=0, dtype=np.float64)
        sent += ranks.step(values)
    kept = np.zeros(size)
    cut = split_matrices(ranks.packing, 0, size, rank)
    for each in ranks._reducers:
        (part,) = each._parts.values()
        for matrix in cut.matrices:
            place = slice(matrix.offset, matrix.offset + matrix.size)
            kept[place] += part._residual[place]
    np.testing.assert_allclose(sent + kept, meant, atol=2e-4)
    for run in cut.rest:
        np.testing.assert_allclose(sent[run], meant[run], rtol=1e-5, atol=1e-5)


def test_error_feedback_loses_nothing_for_good() -> None:
    """The mean of the results converges to the mean of the gradients: the residual stays bounded."""
    ranks = Ranks([(3, 3, 20, 32), (32,)], 2, 4)
    meant = _normal(3, 2, ranks.packing.size)
    total = np.zeros(ranks.packing.size)
    errors = []
    for step in range(1, 161):
        total += ranks.step(meant)
        if step in {40, 160}:
            errors.append(np.abs(total / step - meant.sum(axis=0)).max())
    assert errors[1] < 0.5 * errors[0]
    assert errors[1] < 0.5


def test_a_bucket_is_sent_in_two_small_messages() -> None:
    ranks = Ranks([(64, 96), (96,), (3, 3, 64, 64), (64,), (5, 5)], 2, 4)
    ranks.step(_normal(4, 2, ranks.packing.size))
    left = 4 * (64 + 9 * 64) + 96 + 64 + 25
    assert ranks.exact_sum.sent == [left, 4 * (96 + 64)]


def test_the_first_steps_are_uncompressed() -> None:
    ranks = Ranks([(40, 30), (7,)], 2, 2, in_full=2)
    size = 40 * 30 + 7
    values = _normal(5, 3, 2, size)
    for step in range(2):
        np.testing.assert_allclose(ranks.step(values[step]), values[step].sum(axis=0), atol=1e-5)
    assert ranks.exact_sum.sent == [size] * 2
    assert np.abs(ranks.step(values[2]) - values[2].sum(axis=0)).max() > 0.1, "rank 2 cannot express the full gradient"
    assert ranks.exact_sum.sent[2:] == [2 * 40 + 7, 2 * 30]


@pytest.mark.parametrize(("step", "full"), [(1, True), (10, True), (11, False), (100, False)])
def test_compression_starts_by_step_number_not_by_count_of_sums(step: int, *, full: bool) -> None:
    """Local SGD sums rarely, and a run that resumes from a checkpoint has not summed yet."""
    packing = Packing([("a", Parameter("a", (100, 80), 1, 0.0))])
    spec = RunSpec(
        "r",
        "lenet",
        DataSpec("synthetic", 10, (8, 8, 1), 10),
        PHONES,
        100,
        communication=CommunicationSpec(local_steps=20),
    )

    def work(world: ThreadWorld) -> bool:
        gradients = _normal(6, packing.size).astype(np.float32)
        whole = gradients.copy()
        make_reducer(spec, world, packing, CollectiveConfig("ring", "fp16", 0)).reduce(whole, slice(None), step)
        make_reducer(spec, world, packing, CollectiveConfig("ring", "powersgd", 0)).reduce(gradients, slice(None), step)
        return gradients.tobytes() == whole.tobytes()

    assert on_ranks(len(PHONES), work) == [full] * len(PHONES)


def test_buckets_are_independent() -> None:
    """Reducing one bucket leaves the gradients of other buckets unchanged."""
    shapes: list[tuple[int, ...]] = [(30, 40), (7,), (40, 50)]
    ranks = Ranks(shapes, 2, 1)
    values = _normal(5, 2, ranks.packing.size).astype(np.float32)
    cut = prod(shapes[0]) + 7
    ranks.step(values, slice(0, cut))
    np.testing.assert_array_equal(ranks.gradients[1][cut:], values[1, cut:])


def test_a_layer_with_zero_gradients_can_recover() -> None:
    ranks = Ranks([(40, 30)], 2, 2)
    size = ranks.packing.size
    for _ in range(2):
        assert not ranks.step(np.zeros((2, size))).any()
    assert ranks.step(_normal(6, 2, size)).any()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_nan_and_inf_spread_to_the_whole_matrix(poison: float) -> None:
    ranks = Ranks([(40, 30)], 2, 2)
    values = _normal(7, 2, 1200)
    values[1, 77] = poison
    assert not np.isfinite(ranks.step(values)).any()


def test_split_parameters_and_unsupported_ranks_are_rejected() -> None:
    with pytest.raises(AgentError, match="split a parameter"):
        Ranks([(40, 30)], 1, 2).step(np.zeros((1, 1200)), slice(0, 600))
    with pytest.raises(AgentError, match="choose from: 1, 2, 4, 8, 16"):
        Ranks([(4, 3)], 1, 3)


def test_powersgd_over_a_ring() -> None:
    rows, columns = 100, 80
    packing = Packing([("w", Parameter("w", (rows, columns), 1, 0.0)), ("b", Parameter("b", (columns,), 1, 0.0))])
    values = _normal(8, 3, packing.size).astype(np.float32)
    values[:, : rows * columns] = (_normal(9, 3, rows, 1) @ _normal(10, 1, columns)).reshape(3, -1)
    coarse = 4 * 2.0**-11 * np.abs(values).sum(axis=0).max()  # fp16 rounds both factors at every hop
    spec = RunSpec("r", "lenet", DataSpec("synthetic", 10, (8, 8, 1), 10), PHONES, 1)

    def work(world: ThreadWorld) -> bytes:
        gradients: Floats = values[world.rank].copy()
        make_reducer(spec, world, packing, CollectiveConfig("ring", "powersgd", 0)).reduce(
            gradients, slice(0, packing.size), step=1
        )
        np.testing.assert_allclose(gradients, values.sum(axis=0), atol=coarse)
        return gradients.tobytes()

    assert len(set(on_ranks(3, work))) == 1


def test_bytes_sent_match_the_predicted_message_sizes() -> None:
    packing = Packing([
        ("w", Parameter("w", (100, 80), 1, 0.0)), ("b", Parameter("b", (80,), 1, 0.0)),
        ("v", Parameter("v", (9, 200, 60), 1, 0.0)), ("c", Parameter("c", (60,), 1, 0.0)),
    ])  # fmt: skip
    bucket_bytes = 4 * 100 * 80

    def work(world: ThreadWorld) -> int:
        summed = make_collective("ring", world, WIRE)
        gradients = _normal(12, packing.size).astype(np.float32)
        several = PowerSgd(summed, packing)
        for part in trainable_bucket_slices(packing, bucket_bytes):
            several.reduce(gradients, part, step=1)
        return summed.traffic.bytes

    predicted = PowerSgdMessageSizes(packing)
    messages = predicted.step_messages("powersgd", bucket_bytes)
    lengths = [RANK * 100, RANK * 80, 80 + RANK * 1800, RANK * 60, 60]
    assert messages == [WIRE.size(length) for length in lengths]
    assert predicted.bucket_messages("powersgd", bucket_bytes) == messages[2:4]
    assert predicted.last_bucket_messages("powersgd", bucket_bytes) == messages[4:]
    shares = 2 * (len(PHONES) - 1)
    assert sum(on_ranks(len(PHONES), work)) == pytest.approx(shares * sum(messages), rel=0.01)


def test_a_single_rank_loses_nothing() -> None:
    packing = Packing([("w", Parameter("w", (40, 50), 1, 0.0))])
    spec = RunSpec("r", "lenet", DataSpec("synthetic", 10, (8, 8, 1), 10), (RankSpec(0, "p", "sw1", 1, "", 8),), 1)
    gradients = _normal(11, packing.size).astype(np.float32)
    before = gradients.copy()
    make_reducer(spec, SingleProcessWorld(), packing, CollectiveConfig("ring", "powersgd", 0)).reduce(
        gradients, slice(0, packing.size), step=1
    )
    np.testing.assert_array_equal(gradients, before)
