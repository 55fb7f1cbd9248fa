"""What a study shows of the published figures: ratios that can be worked out by hand."""

from __future__ import annotations

import pytest

from orchestrator.device_study.findings import findings
from orchestrator.device_study.published import FIGURES
from orchestrator.device_study.result import DeviceStudy, gflops, is_scaled, scaled_s
from tests.orchestrator.device_study.samples import case, rows, study, without_memory

FOUND = {name: finding.measured for name, finding in zip(FIGURES, findings(study().devices[0]), strict=True)}


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("fc depth training", 8.0),
        ("fc width inference", 8.0),
        ("conv depth training", 8.0),  # of the widths that fit
        ("conv width training", 8.0),
        ("conv against fc", 100.0),
        ("separable training", 2.0),
        ("gradients of backward", 90.0),
        ("gradients of step", 63.0),
        ("backward of step", 70.0),
        ("mentee cpu", 360.0),
        ("background training", 3.5),
        ("foreground loss", 10.0),
        ("heat last", 100 * (1.355 / 1.055 - 1)),
        ("gpu conv", None),  # there was no device
        ("mobilenet cpu", None),  # not measured
    ],
)
def test_figures_follow_from_the_rows(name: str, measured: float | None) -> None:
    assert FOUND[name] == (measured if measured is None else pytest.approx(measured))


def test_speedup_is_the_maximum() -> None:
    times = {(64, "cpu"): 2.0, (64, "opencl"): 1.0, (128, "cpu"): 6.0, (128, "opencl"): 2.0}
    made = [case("conv", width, 4, seconds, backend=backend) for (width, backend), seconds in times.items()]
    found = dict(zip(FIGURES, findings(DeviceStudy("p1", "", virtual=False, rows=tuple(made))), strict=True))
    assert found["gpu conv"].measured == pytest.approx(3.0)


def test_an_empty_study_measures_nothing() -> None:
    assert {finding.measured for finding in findings(DeviceStudy("p1", "", virtual=False, rows=()))} == {None}


def test_times_of_smaller_batches_are_scaled_and_marked() -> None:
    half = case("fc", 64, 1, 0.5, batch=64)
    assert (half.training_s, scaled_s(half.training_s, half), is_scaled(half)) == (0.25, 0.5, True)
    assert gflops(half) == pytest.approx(3000 * 64 / 0.25 / 1e9)
    assert scaled_s(None, half) is None
    assert gflops(without_memory(half)) is None


def test_every_figure_has_a_measure() -> None:
    assert len(findings(DeviceStudy("p1", "", virtual=False, rows=rows()))) == len(FIGURES)
