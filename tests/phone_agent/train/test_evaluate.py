"""Evaluation on the cluster: each held-out sample counts once, whatever the number of phones."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.contract.errors import AgentError
from phone_agent.contract.shards import HEADER_BYTES
from phone_agent.data.sampling import Normalizer
from phone_agent.data.staged import Staged
from phone_agent.data.synthetic import Synthetic
from phone_agent.nn.graph import BatchNorm, Dense, GraphBuilder
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.train import evaluate
from tests.phone_agent.datasets import CLASSES, SHAPE, damage, stage
from tests.phone_agent.phones import run_spec

SCORES = arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 12)), elements=st.integers(-3, 3))


@given(scores=SCORES, seed=st.integers(0, 99))
def test_metrics_match_their_definitions(scores: NDArray[np.float32], seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, scores.shape[1], len(scores))
    loss, top1, top5, samples = evaluate.metric_sums(scores, labels)
    best = np.argsort(-scores, axis=1, kind="stable")
    assert top1 == (best[:, 0] == labels).sum() == (scores.argmax(axis=1) == labels).sum()
    assert top5 == sum(label in row[:5] for label, row in zip(labels, best, strict=True))
    chances = np.exp(scores.astype(np.float64))
    chances /= chances.sum(axis=1, keepdims=True)
    assert loss == pytest.approx(-np.log(chances[np.arange(len(labels)), labels]).sum(), abs=1e-9)
    assert samples == len(scores)


def test_large_scores_do_not_overflow() -> None:
    scores = np.array([[1e30, 0.0], [0.0, 1e30]], np.float32)
    assert evaluate.metric_sums(scores, np.array([0, 1])).tolist() == [0.0, 2.0, 2.0, 2.0]


@given(samples=st.integers(0, 50), ranks=st.integers(1, 60))
def test_each_sample_is_evaluated_by_one_phone(samples: int, ranks: int) -> None:
    parts = [evaluate.own_samples(samples, rank, ranks) for rank in range(ranks)]
    assert [place for part in parts for place in part] == list(range(samples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("ranks", [1, 3, 14])
def test_metrics_do_not_depend_on_the_number_of_phones(ranks: int) -> None:
    held_out = Synthetic(13, (28, 28, 1), 10, seed=3)
    graph = models.build("lenet", 10, (28, 28, 1), 0.25)
    executable = get_backend("reference").compile(graph, State(graph, 1), 4, Options())
    rows = [
        evaluate.evaluate_samples(executable, held_out, evaluate.own_samples(13, rank, ranks), Normalizer(held_out, 4))
        for rank in range(ranks)
    ]
    found = evaluate.merge_metrics(np.stack(rows))
    images, labels = held_out.take(np.arange(13))
    alone = evaluate.metric_sums(executable.forward(Normalizer(held_out, 13).normalize(images)), labels) / 13
    assert found is not None
    assert found["samples"] == 13
    assert [found["loss"], found["top1"], found["top5"]] == pytest.approx(alone[:3].tolist(), rel=1e-6)


@pytest.mark.parametrize("ranks", [1, 3, 13])
def test_damaged_samples_are_skipped_and_none_counts_twice(tmp_path: Path, ranks: int) -> None:
    manifest = stage(tmp_path / "dots", train=1, test=13)
    whole = Staged(tmp_path / "dots", manifest, manifest.test)
    others = np.delete(np.arange(13), 6)
    images, labels = whole.take(others)
    damage(tmp_path / "dots/test-00000.shard", HEADER_BYTES + 6 * 16 * 16)
    held_out = Staged(tmp_path / "dots", manifest, manifest.test, on_corrupt="skip")
    net = GraphBuilder(SHAPE)
    net.add("fc", Dense(CLASSES))
    executable = get_backend("reference").compile(net.build(), State(net.build(), 1), 4, Options())
    rows = [
        evaluate.evaluate_samples(executable, held_out, evaluate.own_samples(13, rank, ranks), Normalizer(held_out, 4))
        for rank in range(ranks)
    ]
    found = evaluate.merge_metrics(np.stack(rows))
    alone = evaluate.metric_sums(executable.forward(Normalizer(whole, 12).normalize(images)), labels) / 12
    assert found is not None
    assert found["samples"] == 12
    assert [found["loss"], found["top1"], found["top5"]] == pytest.approx(alone[:3].tolist(), rel=1e-6)


def test_long_evaluation_reports_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = Synthetic(13, (28, 28, 1), 10, seed=3)
    graph = models.build("lenet", 10, (28, 28, 1), 0.25)
    executable = get_backend("reference").compile(graph, State(graph, 1), 4, Options())
    reported: list[int] = []
    for every_s, expected in ((1e9, []), (0.0, [4, 8, 11])):
        monkeypatch.setattr(evaluate, "PROGRESS_EVERY_S", every_s)
        evaluate.evaluate_samples(executable, held_out, range(2, 13), Normalizer(held_out, 4), reported.append)
        assert reported == expected


def test_no_samples_give_no_metrics_and_nan_is_an_error() -> None:
    assert evaluate.merge_metrics(np.zeros((3, 4))) is None
    with pytest.raises(AgentError, match="lower the learning rate"):
        evaluate.merge_metrics(np.array([[np.nan, 0, 0, 4], [1, 1, 1, 4]]))


def in_step(states: list[State], shares: list[float]) -> None:
    """Combines the statistics of several ranks, each in a thread."""
    meet, rows = threading.Barrier(len(states)), [np.empty(0, np.float32)] * len(states)

    def rank(number: int) -> None:
        def allreduce(buffer: NDArray[np.float32]) -> None:
            rows[number] = buffer.copy()
            meet.wait(60)
            buffer[...] = np.sum(rows, axis=0, dtype=np.float32)
            meet.wait(60)

        evaluate.combine_statistics(states[number], shares[number], allreduce)

    with ThreadPoolExecutor(len(states)) as pool:
        list(pool.map(rank, range(len(states))))


def test_combined_statistics_are_those_of_all_images() -> None:
    net = GraphBuilder((4, 4, 3))
    net.add("first", BatchNorm())
    net.add("fc", Dense(5))
    net.add("second", BatchNorm())
    graph = net.build()
    images = np.random.default_rng(0).normal(3, 2, (8, 4, 4, 3)).astype(np.float32)
    parts, states = (images[:4], images[4:6], images[6:]), [State(graph, 1) for _ in range(3)]
    for part, state in zip(parts, states, strict=True):
        views = state.statistics_packing.views(state.statistics)
        views["first.running_mean"][...], views["first.running_var"][...] = part.mean((0, 1, 2)), part.var((0, 1, 2))
    in_step(states, [4 / 8, 2 / 8, 2 / 8])
    for state in states:
        views = state.statistics_packing.views(state.statistics)
        np.testing.assert_allclose(views["first.running_mean"], images.mean((0, 1, 2)), rtol=1e-5)
        np.testing.assert_allclose(views["first.running_var"], images.var((0, 1, 2)), rtol=1e-5)
        np.testing.assert_array_equal(state.statistics, states[0].statistics)
        np.testing.assert_array_equal(views["second.running_var"], 1)


def test_training_continues_with_its_own_statistics() -> None:
    graph = models.build("resnet20", 10, (32, 32, 3), 0.25)
    state = State(graph, 1)
    own = state.statistics.copy()
    with evaluate.combined_statistics(state, 0.25, lambda _: None):
        assert (state.statistics != own).any()
    np.testing.assert_array_equal(state.statistics, own)


def test_when_one_is_due() -> None:
    assert [step for step in range(1, 8) if evaluate.is_due(run_spec((4,), steps=7, eval_every=3), step)] == [3, 6, 7]
    assert [step for step in range(1, 8) if evaluate.is_due(run_spec((4,), steps=7), step)] == [7]
