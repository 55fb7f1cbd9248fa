"""CPU, memory and battery power when idle, in inference and in training."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import mean

from phone_agent import models
from phone_agent.contract.device_study import Load, StudyRequest
from phone_agent.contract.files import read_text
from phone_agent.device import cpu, thermal
from phone_agent.device.isolated import IsolatedError, IsolatedProcess, run_isolated
from phone_agent.device.power import Power, read_power
from phone_agent.device.process import PROC
from phone_agent.device_study import steps
from phone_agent.device_study.cases import StudyContext

NO_BATTERY = "battery power is unavailable: no battery, or its current and voltage are not readable"
SAMPLE_INTERVAL_S = 1.0


@dataclass(frozen=True)
class DeviceReadings:
    """Sensor readings taken while the device was busy."""

    powers: tuple[Power, ...]
    temperature_c: float | None
    frequency_mhz: float | None

    def add_to(self, load: Load) -> Load:
        warm = replace(load, temperature_c=self.temperature_c, frequency_mhz=self.frequency_mhz)
        if not self.powers:
            return replace(warm, why=NO_BATTERY)
        return replace(
            warm,
            power_w=mean(power.watts for power in self.powers),
            current_a=mean(power.current_a for power in self.powers),
            voltage_v=mean(power.voltage_v for power in self.powers),
            plugged=self.powers[-1].plugged,
        )


def loads(request: StudyRequest, context: StudyContext) -> Iterator[Load]:
    yield _measure_idle(context.limits.load_s)
    for name in request.models:
        for backend in context.usable(request):
            workload = steps.Workload(models.build(name), backend, context.threads)
            for activity in ("inference", "training"):
                yield _measure_busy(workload, activity, request.batch, context)


def _measure_idle(seconds: float) -> Load:
    before = time.process_time()
    readings = sample_device(seconds)
    share = (time.process_time() - before) / seconds
    return readings.add_to(Load("rest", "", "", seconds, share, _resident_bytes()))


def _measure_busy(workload: steps.Workload, activity: str, batch: int, context: StudyContext) -> Load:
    limits, name = context.limits, workload.graph.name
    try:
        batch = run_isolated(lambda: steps.fitting_batch(workload, batch, limits.model_step_s / 2), limits.case_limit_s)
        make = steps.training if activity == "training" else steps.inference
        work = steps.repeating(lambda: make(workload, batch), limits.load_s)
        with IsolatedProcess.fork(work, limits.case_limit_s) as process:
            process.wait_until_ready()
            process.release()
            readings = sample_device(limits.load_s)
            found = steps.Repeats(**process.result())
    except IsolatedError as error:
        return Load(activity, name, workload.backend, 0.0, None, None, why=str(error), code=error.code)
    share = found.cpu_s / found.wall_s
    return readings.add_to(Load(activity, name, workload.backend, found.wall_s, share, found.resident_bytes))


def sample_device(seconds: float) -> DeviceReadings:
    """Samples for `seconds`, once per second. A battery that does not respond is not queried again."""
    end = time.monotonic() + seconds
    powers: list[Power] = []
    clocks: list[float] = []
    has_battery = True
    while True:
        power = read_power() if has_battery else None
        has_battery = power is not None
        powers += [power] if power else []
        clocks += [now] if (now := cpu.frequency_mhz()[0]) else []
        left = end - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(SAMPLE_INTERVAL_S, left))
    zone = thermal.from_zones()
    return DeviceReadings(tuple(powers), zone.celsius if zone else None, mean(clocks) if clocks else None)


def _resident_bytes() -> int | None:
    pages = (read_text(PROC / "self" / "statm") or "").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None
