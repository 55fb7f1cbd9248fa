"""Benchmark targets: printed lines, exit code, and the targets of each benchmark."""

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
from benchmarks.targets import Target, report_targets
from phone_agent import models
from phone_agent.contract.schema import DataSpec, RunSpec
from phone_agent.nn.graph import Dropout
from tests.phone_agent.phones import make_phones, run_spec
from tests.phone_agent.threaded_training import TEN
from tests.phone_agent.train.test_training import TOLERANCE, train


def verdicts(targets: Iterable[Target]) -> list[str]:
    return [str(target).rpartition(": ")[2] for target in targets]


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (Target("ratio", 1.35, ">=", 1), "ratio: 1.35 (>= 1): met"),
        (Target("ratio", 1.0, ">=", 1), "ratio: 1 (>= 1): met"),
        (Target("ratio", 1.0, ">", 1), "ratio: 1 (> 1): MISSED"),
        (Target("ratio", 0.9996, ">=", 1), "ratio: 0.9996 (>= 1): MISSED"),
        (Target("part", 0.11, "<=", 0.1), "part: 0.11 (<= 0.1): MISSED"),
        (Target("part", float("nan"), "<=", 0.1), "part: nan (<= 0.1): MISSED"),
        (Target("part", None, "<=", 0.1), "part: not run (<= 0.1): MISSED"),
        (Target("part", None, "<=", 0.1, "not asked for"), "part: not run (<= 0.1): not checked, not asked for"),
        (Target("part", 0.2, "<=", 0.1, "too small"), "part: 0.2 (<= 0.1): not checked, too small"),
    ],
)
def test_target_line_shows_value_bound_and_verdict(target: Target, line: str) -> None:
    assert str(target) == line


MET, MISSED, SKIPPED = Target("a", 2, ">=", 1), Target("b", 0, ">=", 1), Target("c", 0, ">=", 1, "why not")


@pytest.mark.parametrize("targets", [[MET], [MET, SKIPPED]])
def test_met_targets_exit_normally(targets: list[Target], capsys: pytest.CaptureFixture[str]) -> None:
    report_targets(targets)
    assert capsys.readouterr().out.splitlines() == [str(target) for target in targets]


@pytest.mark.parametrize("targets", [[MET, MISSED], [MISSED, SKIPPED], [SKIPPED], []])
def test_a_missed_target_or_no_checked_target_exits_with_1(targets: list[Target]) -> None:
    with pytest.raises(SystemExit) as ended:
        report_targets(targets)
    assert ended.value.code == 1


def test_packing_is_compared_with_one_call_per_parameter() -> None:
    seconds = {
        "resnet50": {"ring": 1.0, "mpi": 0.5, "chunkwise": 1.5},
        "alexnet": {"ring": 1.0, "mpi": 2.0, "chunkwise": 0.99},
    }
    targets = list(packing.targets(seconds))
    assert verdicts(targets) == [
        "met",
        "not checked, depends on Open MPI",
        "MISSED",
        "not checked, depends on Open MPI",
    ]
    assert [target.value for target in targets] == [1.5, 3.0, 0.99, 0.495]


def test_hierarchical_must_be_faster_than_both_for_large_buffers() -> None:
    others = {"ring, not by switch": 0.1, "hierarchical, not by switch": 0.1}
    small = {"ring": 1.0, "hierarchical": 2.0, "MPI_Allreduce": 1.0, **others}
    large = {"ring": 3.0, "hierarchical": 2.0, "MPI_Allreduce": 2.0, **others}
    lines = verdicts(hierarchy.targets({0.1: small, 25.0: large}))
    assert lines == ["not checked, less than 25 MB", "not checked, less than 25 MB", "met", "MISSED"]


@pytest.mark.parametrize(
    ("compute", "exposed", "verdict"),
    [(2.0, 0.05, "met"), (1.0, 0.11, "MISSED"), (0.9, 0.5, "not checked, communication takes longer than computing")],
)
def test_exposed_communication_is_checked_only_if_computing_takes_as_long(
    compute: float, exposed: float, verdict: str
) -> None:
    result = overlap.Result("lenet", 8, compute, 1.0, 3.0, 2.0, exposed)
    assert verdicts([result.target()]) == [verdict]


def test_every_network_is_trained_with_equal_and_unequal_batches() -> None:
    for name in TEN:
        normalizes = name.startswith(("inception", "mobilenet", "resnet"))
        of_network = list(correctness.cases(name))
        assert [case.whole for case in of_network] == [False, False] + [True] * (not normalizes)
        equal, unequal, *_ = of_network
        assert equal.batch % correctness.PHONES == 0 != unequal.batch % correctness.PHONES
        assert 0 < unequal.micro_batch < unequal.batch / correctness.PHONES


@pytest.mark.parametrize("name", correctness.WITHOUT_DROPOUT)
def test_whole_batch_case_uses_the_same_network_without_dropout(name: str) -> None:
    *_, whole = correctness.cases(name)
    graph, published = models.build(whole.model, 10, (96, 96, 3)), models.build(name, 10, (96, 96, 3))
    assert {node.layer.rate for node in graph.nodes if isinstance(node.layer, Dropout)} == {0.0}
    assert [node.name for node in graph.nodes] == [node.name for node in published.nodes]
    assert not any(node.statistics for node in graph.nodes)


def test_nan_losses_miss_the_target() -> None:
    assert correctness.difference([2.0, 1.0], [2.0, 0.5]) == 1.0
    for losses, reference in (([2.3, math.nan], [2.3, 2.2]), ([2.3, 2.2], [2.3, math.nan])):
        assert verdicts([Target("", correctness.difference(losses, reference), "<=", 1.0)]) == ["MISSED"]


@pytest.mark.parametrize("how", [{}, {"bucket_bytes": 100_000, "micro_batch": 2}])
def test_one_process_reproduces_a_run_bit_for_bit(tmp_path: Path, how: dict[str, Any]) -> None:
    spec = run_spec((2, 5, 3), steps=4, load_balancing="off", **how)
    phones = make_phones(tmp_path, 3)
    losses = train(phones, spec)
    (choice,) = (event for event in phones[0].events(spec.run_id) if event["event"] == "comm_plan")
    graph = models.build(spec.model, spec.data.classes, spec.data.input_shape)

    def difference(spec: RunSpec) -> float:
        return correctness.difference(losses, OneProcess(spec, graph, choice["bucket_bytes"]).losses())

    assert difference(spec) == 0.0
    assert 0.0 < difference(at_once(spec)) < TOLERANCE
    assert difference(replace(spec, seed=spec.seed + 1)) > 1e-3


def test_rounding_bound_separates_rounding_from_a_wrong_learning_rate() -> None:
    """A learning rate that is off by 1% exceeds the bound; rounding alone does not."""
    network, whole = "benchmarks/without_dropout.py:squeezenet_v1_1", DataSpec("synthetic", 100, (64, 64, 3), 10)
    spec = run_spec((3, 3, 2, 2), steps=3, data=whole)
    graph = models.build(network, 10, (64, 64, 3))
    case = correctness.Case("", network, 10, whole=True)

    def run(rate: float) -> Run:
        wrong = replace(spec, optimizer=replace(spec.optimizer, learning_rate=rate))
        steps = tuple({"event": "step", "loss": loss} for loss in OneProcess(wrong, graph, 100_000).losses())
        return Run(spec, ({"event": "comm_plan", "bucket_bytes": 100_000}, *steps))

    rate = spec.optimizer.learning_rate
    (right, rounding), (wrong, as_before) = case.compare(run(rate)), case.compare(run(1.01 * rate))
    assert right <= rounding == as_before < wrong
