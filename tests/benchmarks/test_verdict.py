"""Promises become lines and an exit code."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import correctness, hierarchy, overlap, packing
from benchmarks.labs import Run
from benchmarks.one_process import OneProcess, at_once
from benchmarks.verdict import Promise, conclude
from phone_agent import models
from phone_agent.contract.schema import DataSpec, RunSpec
from phone_agent.nn.graph import Dropout
from tests.phone_agent.phones import make_phones, run_spec
from tests.phone_agent.together import TEN
from tests.phone_agent.train.test_training import TOLERANCE, train


def verdicts(promises: Iterable[Promise]) -> list[str]:
    return [str(promise).rpartition(": ")[2] for promise in promises]


@pytest.mark.parametrize(
    ("promise", "line"),
    [
        (Promise("ratio", 1.35, ">=", 1), "ratio: 1.35 (>= 1): kept"),
        (Promise("ratio", 1.0, ">=", 1), "ratio: 1 (>= 1): kept"),
        (Promise("ratio", 1.0, ">", 1), "ratio: 1 (> 1): NOT KEPT"),
        (Promise("ratio", 0.9996, ">=", 1), "ratio: 0.9996 (>= 1): NOT KEPT"),
        (Promise("part", 0.11, "<=", 0.1), "part: 0.11 (<= 0.1): NOT KEPT"),
        (Promise("part", float("nan"), "<=", 0.1), "part: nan (<= 0.1): NOT KEPT"),
        (Promise("part", None, "<=", 0.1), "part: not run (<= 0.1): NOT KEPT"),
        (Promise("part", None, "<=", 0.1, "not asked for"), "part: not run (<= 0.1): not judged, not asked for"),
        (Promise("part", 0.2, "<=", 0.1, "too small"), "part: 0.2 (<= 0.1): not judged, too small"),
    ],
)
def test_a_line_says_what_came_out_and_whether_that_is_enough(promise: Promise, line: str) -> None:
    assert str(promise) == line


KEPT, BROKEN, EXCUSED = Promise("a", 2, ">=", 1), Promise("b", 0, ">=", 1), Promise("c", 0, ">=", 1, "why not")


@pytest.mark.parametrize("promises", [[KEPT], [KEPT, EXCUSED]])
def test_kept_promises_end_well(promises: list[Promise], capsys: pytest.CaptureFixture[str]) -> None:
    conclude(promises)
    assert capsys.readouterr().out.splitlines() == [str(promise) for promise in promises]


@pytest.mark.parametrize("promises", [[KEPT, BROKEN], [BROKEN, EXCUSED], [EXCUSED], []])
def test_one_that_is_not_kept_ends_with_1_and_so_does_judging_nothing(promises: list[Promise]) -> None:
    with pytest.raises(SystemExit) as ended:
        conclude(promises)
    assert ended.value.code == 1


def test_packing_is_judged_by_one_call_a_parameter() -> None:
    found = {
        "resnet50": {"ring": 1.0, "mpi": 0.5, "chunkwise": 1.5},
        "alexnet": {"ring": 1.0, "mpi": 2.0, "chunkwise": 0.99},
    }
    told = list(packing.promises(found))
    assert verdicts(told) == ["kept", "not judged, not ours", "NOT KEPT", "not judged, not ours"]
    assert [promise.value for promise in told] == [1.5, 3.0, 0.99, 0.495]


def test_hierarchical_must_be_faster_than_both_for_large_buffers() -> None:
    others = {"ring, not by switch": 0.1, "hierarchical, not by switch": 0.1}
    small = {"ring": 1.0, "hierarchical": 2.0, "MPI_Allreduce": 1.0, **others}
    large = {"ring": 3.0, "hierarchical": 2.0, "MPI_Allreduce": 2.0, **others}
    told = verdicts(hierarchy.promises({0.1: small, 25.0: large}))
    assert told == ["not judged, less than 25 MB", "not judged, less than 25 MB", "kept", "NOT KEPT"]


@pytest.mark.parametrize(
    ("compute", "exposed", "verdict"),
    [(2.0, 0.05, "kept"), (1.0, 0.11, "NOT KEPT"), (0.9, 0.5, "not judged, communicating takes longer than computing")],
)
def test_what_is_exposed_counts_where_computing_takes_as_long(compute: float, exposed: float, verdict: str) -> None:
    result = overlap.Result("lenet", 8, compute, 1.0, 3.0, 2.0, exposed)
    assert verdicts([result.promise()]) == [verdict]


def test_every_network_is_trained_by_equal_and_unequal_batches() -> None:
    for name in TEN:
        normalises = name.startswith(("inception", "mobilenet", "resnet"))
        of_network = list(correctness.cases(name))
        assert [case.whole for case in of_network] == [False, False] + [True] * (not normalises)
        equal, unequal, *_ = of_network
        assert equal.batch % correctness.PHONES == 0 != unequal.batch % correctness.PHONES
        assert 0 < unequal.micro_batch < unequal.batch / correctness.PHONES


@pytest.mark.parametrize("name", correctness.WITHOUT_DROPOUT)
def test_the_whole_batch_at_once_is_of_the_same_network_and_drops_nothing(name: str) -> None:
    *_, whole = correctness.cases(name)
    graph, published = models.build(whole.model, 10, (96, 96, 3)), models.build(name, 10, (96, 96, 3))
    assert {node.layer.rate for node in graph.nodes if isinstance(node.layer, Dropout)} == {0.0}
    assert [node.name for node in graph.nodes] == [node.name for node in published.nodes]
    assert not any(node.statistics for node in graph.nodes)


def test_losses_that_are_no_numbers_are_not_the_same() -> None:
    assert correctness.difference([2.0, 1.0], [2.0, 0.5]) == 1.0
    for found, wanted in (([2.3, math.nan], [2.3, 2.2]), ([2.3, 2.2], [2.3, math.nan])):
        assert verdicts([Promise("", correctness.difference(found, wanted), "<=", 1.0)]) == ["NOT KEPT"]


@pytest.mark.parametrize("how", [{}, {"bucket_bytes": 100_000, "micro_batch": 2}])
def test_one_process_repeats_a_run_to_the_bit(tmp_path: Path, how: dict[str, Any]) -> None:
    spec = run_spec((2, 5, 3), steps=4, load_balancing="off", **how)
    phones = make_phones(tmp_path, 3)
    losses = train(phones, spec)
    (choice,) = (event for event in phones[0].events(spec.run_id) if event["event"] == "comm_plan")
    graph = models.build(spec.model, spec.data.classes, spec.data.input_shape)

    def apart(spec: RunSpec) -> float:
        return correctness.difference(losses, OneProcess(spec, graph, choice["bucket_bytes"]).losses())

    assert apart(spec) == 0.0
    assert 0.0 < apart(at_once(spec)) < TOLERANCE
    assert apart(replace(spec, seed=spec.seed + 1)) > 1e-3


def test_what_is_rounding_is_found_by_rounding_once_more() -> None:
    """Phones whose rate is wrong by a hundredth are told from phones that round."""
    network, whole = "benchmarks/without_dropout.py:squeezenet_v1_1", DataSpec("synthetic", 100, (64, 64, 3), 10)
    spec = run_spec((3, 3, 2, 2), steps=3, data=whole)
    graph = models.build(network, 10, (64, 64, 3))
    case = correctness.Case("", network, 10, whole=True)

    def run(rate: float) -> Run:
        wrong = replace(spec, optimizer=replace(spec.optimizer, learning_rate=rate))
        steps = tuple({"event": "step", "loss": loss} for loss in OneProcess(wrong, graph, 100_000).losses())
        return Run(spec, ({"event": "comm_plan", "bucket_bytes": 100_000}, *steps))

    rate = spec.optimizer.learning_rate
    (right, rounding), (wrong, as_before) = case.judge(run(rate)), case.judge(run(1.01 * rate))
    assert right <= rounding == as_before < wrong
