"""The check of the kernels runs every one of them, and would notice a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import Structure
from typing import Any

import pytest

from phone_agent.contract.assumptions import Found, Status
from phone_agent.core.library import isas, library
from phone_agent.core.ops import Algorithm, Kind
from phone_agent.core.thread_pool import Program, ThreadPool
from phone_agent.selftest import compute, kernels, worker
from phone_agent.train.optimizers import NumpyOptimizer

CONVOLUTIONS = {Kind.CONV_FORWARD, Kind.CONV_BACKWARD_DATA, Kind.CONV_BACKWARD_WEIGHTS}


def test_every_kernel_is_tried_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: set[Any] = set()
    make = Program.of

    def noted(made: Iterable[tuple[Kind, Structure]]) -> Program:
        pairs = list(made)
        tried.update(kind for kind, _ in pairs)
        tried.update((kind, Algorithm(op.algorithm)) for kind, op in pairs if kind in CONVOLUTIONS)
        return make(pairs)

    monkeypatch.setattr(Program, "of", noted)
    found = kernels.errors(isas(library())[0])
    assert {name: error for name, (error, bound) in found.items() if not error <= bound} == {}
    assert set(Kind) - tried == {Kind.FMA_PEAK}  # which computes nothing
    assert {(kind, Algorithm.WINOGRAD4) for kind in CONVOLUTIONS} <= tried


def test_a_wrong_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = NumpyOptimizer.update

    def slightly_other(self: NumpyOptimizer, part: slice, rate: float, step: int) -> None:
        right(self, part, rate * 1.001, step)

    monkeypatch.setattr(NumpyOptimizer, "update", slightly_other)
    assert kernels._update_error("sgd", isas(library())[0]) > kernels.UPDATES


def test_a_kernel_that_writes_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadPool, "run", lambda *_: None)
    assert kernels._picture_error(isas(library())[0]) == float("inf")


def test_one_broken_set_of_kernels_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_set(isa: str) -> Found:
        if isa == "worse":
            return Found(Status.FAILED, "layers is wrong by 1.0e+00")
        return Found(Status.OK, "")

    monkeypatch.setattr(worker, "check_core", lambda: "better, worse")
    monkeypatch.setattr(compute, "_one_set", one_set)
    found = compute.kernels()
    assert (found.status, found.told) == (Status.FAILED, "worse: layers is wrong by 1.0e+00")
