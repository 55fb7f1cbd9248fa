"""Promises become lines and an exit code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from benchmarks import correctness, hierarchy, overlap, packing
from benchmarks.verdict import Promise, conclude
from phone_agent import models
from phone_agent.nn.graph import Dropout
from tests.agent.together import TEN, Setting, network


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
    assert verdicts(told) == ["kept", "NOT KEPT"]
    assert [promise.value for promise in told] == [1.5, 0.99]


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
        cases = {case.name: case for case in correctness.cases(network(name), 5)}
        normalises = name.startswith(("inception", "mobilenet", "resnet"))
        assert len(cases) == (2 if normalises else 3)
        assert len({*cases["equal batches"].phones.batches}) == 1 < len({*cases["unequal batches"].phones.batches})
        assert len({case.process.global_batch for case in cases.values()}) == 1


def test_the_whole_batch_at_once_drops_nothing() -> None:
    *_, at_once = correctness.cases(network("squeezenet_v1_1"), 5)
    layers = [node.layer for node in at_once.phones.graph.nodes]
    assert [layer.rate for layer in layers if isinstance(layer, Dropout)] == [0.0]
    assert len(at_once.process.batches) == 1


def test_phones_that_train_otherwise_are_told() -> None:
    setting = Setting(models.build("lenet", 10, (28, 28, 1)), (2, 1, 2, 1), steps=2)
    same = correctness.Case("", setting, setting)
    assert same.apart() <= correctness.ROUNDING
    assert replace(same, process=replace(setting, seed=4)).apart() > 1e-3
