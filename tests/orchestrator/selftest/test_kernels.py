"""The kernel check runs every kernel and detects wrong results."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import Structure
from typing import Any

import pytest

from phone_agent.contract.assumptions import CheckResult, Status
from phone_agent.core.library import isas, library
from phone_agent.core.ops import Algorithm, Kind
from phone_agent.core.thread_pool import Program, ThreadPool
from phone_agent.selftest import compute, kernels, worker
from phone_agent.train.optimizers import NumpyOptimizer

CONVOLUTIONS = {Kind.CONV_FORWARD, Kind.CONV_BACKWARD_DATA, Kind.CONV_BACKWARD_WEIGHTS}


def test_every_kernel_runs_and_is_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    run_kinds: set[Any] = set()
    make = Program.of

    def record(made: Iterable[tuple[Kind, Structure]]) -> Program:
        pairs = list(made)
        run_kinds.update(kind for kind, _ in pairs)
        run_kinds.update((kind, Algorithm(op.algorithm)) for kind, op in pairs if kind in CONVOLUTIONS)
        return make(pairs)

    monkeypatch.setattr(Program, "of", record)
    errors = kernels.kernel_errors(isas(library())[0])
    assert {name: error for name, (error, bound) in errors.items() if not error <= bound} == {}
    assert set(Kind) - run_kinds == {Kind.FMA_PEAK}  # measures speed only
    assert {(kind, Algorithm.WINOGRAD4) for kind in CONVOLUTIONS} <= run_kinds


def test_a_wrong_result_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    correct = NumpyOptimizer.update

    def slightly_wrong(self: NumpyOptimizer, part: slice, rate: float, step: int) -> None:
        correct(self, part, rate * 1.001, step)

    monkeypatch.setattr(NumpyOptimizer, "update", slightly_wrong)
    assert kernels._optimizer_error("sgd", isas(library())[0]) > kernels.OPTIMIZERS


def test_a_kernel_that_writes_nothing_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadPool, "run", lambda *_: None)
    assert kernels._augmentation_error(isas(library())[0]) == float("inf")


def test_one_broken_instruction_set_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_isa(isa: str) -> CheckResult:
        if isa == "worse":
            return CheckResult(Status.FAILED, "layers: error 1.0e+00")
        return CheckResult(Status.OK, "")

    monkeypatch.setattr(worker, "check_core", lambda: "better, worse")
    monkeypatch.setattr(compute, "_check_isa", check_isa)
    found = compute.kernels()
    assert (found.status, found.detail) == (Status.FAILED, "worse: layers: error 1.0e+00")
