"""Published figures, each with the measurement of this device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp, log
from statistics import mean, median

from orchestrator.device_study.published import FIGURES, Figure
from orchestrator.device_study.result import DeviceStudy
from phone_agent.contract.device_study import (
    FOREGROUND_ALONE,
    PROFILED,
    TRAINING_ALONE,
    TRAINING_LOW_PRIORITY,
    Case,
    Interference,
    network_name,
)

Measure = Callable[[DeviceStudy], float | None]
GRADIENTS = {"conv_backward_weights", "conv_backward_data"}


@dataclass(frozen=True)
class Finding:
    """`measured` has the unit of the figure; None if this study did not measure it."""

    figure: Figure
    measured: float | None


def findings(device: DeviceStudy) -> list[Finding]:
    return [Finding(figure, _MEASURES[name](device)) for name, figure in FIGURES.items()]


def image_s(case: Case, activity: str) -> float | None:
    seconds = case.training_s if activity == "training" else case.inference_s
    return seconds / case.batch if seconds and case.batch else None


def _growth(family: str, along: str, activity: str) -> Measure:
    """Growth from width 64 to 512 or depth 1 to 8: the maximum over the other dimension."""
    ends = (64, 512) if along == "width" else (1, 8)

    def measure(device: DeviceStudy) -> float | None:
        times: dict[tuple[int, int], float] = {}
        for case in _on(device.sweep, family, "cpu"):
            if seconds := image_s(case, activity):
                size = (case.width, case.depth) if along == "width" else (case.depth, case.width)
                times[size] = seconds
        ratios = [times[ends[1], other] / times[first, other] for first, other in times
                  if first == ends[0] and (ends[1], other) in times]  # fmt: skip
        return max(ratios, default=None)

    return measure


def _on(cases: Iterable[Case], family: str, backend: str) -> list[Case]:
    return [case for case in cases if (case.family, case.backend) == (family, backend)]


def _between(device: DeviceStudy, one: str, other: str, activity: str) -> dict[tuple[int, int], float]:
    """Time of family `one` relative to `other`, by width and depth."""
    times = {
        family: {(case.width, case.depth): image_s(case, activity) for case in _on(device.sweep, family, "cpu")}
        for family in (one, other)
    }
    both = times[one].keys() & times[other].keys()
    pairs = {size: (times[one][size], times[other][size]) for size in both}
    return {size: first / second for size, (first, second) in pairs.items() if first and second}


def _convolution_against_dense(device: DeviceStudy) -> float | None:
    ratios = _between(device, "conv", "fc", "training").values()
    return exp(mean(map(log, ratios))) if ratios else None


def _separable(activity: str) -> Measure:
    return lambda device: _between(device, "conv", "separable", activity).get((512, 1))


def _share(of: Callable[[str, str], bool], among: Callable[[str], bool]) -> Measure:
    """Percentage of the time of the four-layer network on the CPU."""

    def measure(device: DeviceStudy) -> float | None:
        rows = [row for row in device.operations if (row.network, row.backend) == (network_name(*PROFILED), "cpu")]
        whole = sum(row.seconds for row in rows if among(row.direction))
        part = sum(row.seconds for row in rows if among(row.direction) and of(row.kind, row.direction))
        return 100 * part / whole if whole else None

    return measure


def _is_backward(direction: str) -> bool:
    return direction == "backward"


def _accelerated(family: str, activity: str, name: str = "") -> Measure:
    """Speedup of OpenCL over the CPU: the maximum."""

    def measure(device: DeviceStudy) -> float | None:
        cases = [*device.models, *device.sweep]
        times = {(each.backend, each.name): image_s(each, activity) for each in cases if each.family == family}
        ratios = [
            seconds / opencl
            for (backend, each), seconds in times.items()
            if backend == "cpu" and seconds and name in {"", each} and (opencl := times.get(("opencl", each)))
        ]
        return max(ratios, default=None)

    return measure


def _cpu_percent(network: str) -> Measure:
    def measure(device: DeviceStudy) -> float | None:
        shares = [
            load.cpu_share
            for load in device.loads
            if (load.network, load.activity, load.backend) == (network, "training", "cpu")
        ]
        return 100 * shares[0] if shares and shares[0] is not None else None

    return measure


def _interference(device: DeviceStudy, situation: str) -> Interference | None:
    return next((each for each in device.interference if each.situation == situation), None)


def _background(device: DeviceStudy) -> float | None:
    behind, alone = _interference(device, TRAINING_LOW_PRIORITY), _interference(device, TRAINING_ALONE)
    if behind is None or alone is None or not behind.training_s or not alone.training_s:
        return None
    return behind.training_s / alone.training_s


def _foreground_loss(device: DeviceStudy) -> float | None:
    behind, alone = _interference(device, TRAINING_LOW_PRIORITY), _interference(device, FOREGROUND_ALONE)
    if behind is None or alone is None or behind.foreground_rate is None or not alone.foreground_rate:
        return None
    return 100 * (1 - behind.foreground_rate / alone.foreground_rate)


def _slower_when_warm(quarter: int) -> Measure:
    """Slowdown in a quarter of the thermal run, 1 to 3, relative to the first quarter."""

    def measure(device: DeviceStudy) -> float | None:
        times = [sample.training_s for sample in device.samples]
        size = len(times) // 4
        if not size:
            return None
        return 100 * (median(times[quarter * size : (quarter + 1) * size]) / median(times[:size]) - 1)

    return measure


_MEASURES: dict[str, Measure] = {
    **{f"{family} {along} {activity}": _growth(family, along, activity)
       for family in ("fc", "conv") for along in ("depth", "width") for activity in ("training", "inference")},
    "conv against fc": _convolution_against_dense,
    "separable training": _separable("training"),
    "separable inference": _separable("inference"),
    "gradients of backward": _share(lambda kind, _: kind in GRADIENTS, _is_backward),
    "gradients of step": _share(lambda kind, _: kind in GRADIENTS, lambda _: True),
    "backward of step": _share(lambda _, direction: _is_backward(direction), lambda _: True),
    "gpu conv": _accelerated("conv", "training"),
    "gpu mobilenet training": _accelerated("model", "training", "mobilenet_reduced"),
    "gpu mobilenet inference": _accelerated("model", "inference", "mobilenet_reduced"),
    "mentee cpu": _cpu_percent("mentee"),
    "mobilenet cpu": _cpu_percent("mobilenet_reduced"),
    "background training": _background,
    "foreground loss": _foreground_loss,
    "heat first": _slower_when_warm(1),
    "heat last": _slower_when_warm(3),
}  # fmt: skip
