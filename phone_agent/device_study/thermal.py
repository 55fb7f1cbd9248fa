"""Thermal run: trains for minutes and samples step time, temperature and frequency."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from phone_agent import models
from phone_agent.contract.device_study import Sample, StudyRequest
from phone_agent.device import battery, cpu, thermal
from phone_agent.device.isolated import run_isolated
from phone_agent.device.power import read_power
from phone_agent.device.step_timer import time_steps
from phone_agent.device_study import steps
from phone_agent.device_study.cases import StudyContext

NETWORK = "mobilenet_reduced"
SAMPLES = 120  # at most
MIN_INTERVAL_S = 5.0


def samples(request: StudyRequest, context: StudyContext) -> Iterator[Sample]:
    """On the first available backend, in this process: it is the last part, and emits rows every few seconds."""
    backend = next(iter(context.usable(request)), None)
    if backend is None or not request.thermal_minutes:
        return
    whole_s = request.thermal_minutes * 60
    every_s = min(whole_s / 4, max(MIN_INTERVAL_S, whole_s / SAMPLES))
    workload = steps.Workload(models.build(NETWORK), backend, context.threads)
    batch = run_isolated(lambda: steps.fitting_batch(workload, request.batch, every_s / 5), context.limits.case_limit_s)
    step = steps.training(workload, batch)
    step()
    began = time.monotonic()
    has_battery = read_power() is not None
    while (at := time.monotonic() - began) < whole_s:
        step_s = time_steps(step, min_seconds=min(every_s, whole_s - at), warm_up=0)
        yield _sample(workload, batch, time.monotonic() - began, step_s, has_battery=has_battery)


def _sample(workload: steps.Workload, batch: int, at_s: float, step_s: list[float], *, has_battery: bool) -> Sample:
    found = thermal.read_temperature(battery.read_battery)
    power = read_power() if has_battery else None
    return Sample(
        workload.graph.name,
        workload.backend,
        batch,
        at_s,
        median(step_s),
        found.celsius if found else None,
        found.source if found else None,
        cpu.frequency_mhz()[0],
        power.watts if power else None,
    )
