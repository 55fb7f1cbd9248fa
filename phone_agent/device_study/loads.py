"""CPU, memory and battery power when idle, in inference and in training; and a thermal run of minutes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import mean, median

from phone_agent import models
from phone_agent.contract.device_study import Load, Sample, StudyRequest
from phone_agent.contract.files import read_text
from phone_agent.device import battery, cpu, thermal
from phone_agent.device.isolated import IsolatedError, IsolatedProcess, run_isolated
from phone_agent.device.power import BatteryReading, Power, battery_meter
from phone_agent.device.process import PROC
from phone_agent.device.step_timer import time_steps
from phone_agent.device_study import steps
from phone_agent.device_study.cases import StudyContext

NO_BATTERY = "battery power is unavailable: no battery, or its current and voltage are not readable"
NO_POWER = "battery power is unknown"
SAMPLE_INTERVAL_S = 1.0
THERMAL_NETWORK = "mobilenet_reduced"
MAX_SAMPLES, MIN_INTERVAL_S = 120, 5.0  # of the thermal run


@dataclass(frozen=True)
class DeviceReadings:
    """Sensor readings taken while the device was busy. `power_basis`: how the unit of the current was decided, or why
    not; empty without a battery."""

    powers: tuple[Power, ...]
    power_basis: str
    temperature_c: float | None
    frequency_mhz: float | None

    def add_to(self, load: Load) -> Load:
        warm = replace(load, temperature_c=self.temperature_c, frequency_mhz=self.frequency_mhz)
        if not self.powers:
            return replace(warm, why=f"{NO_POWER}: {self.power_basis}" if self.power_basis else NO_BATTERY)
        return replace(
            warm,
            power_w=mean(power.watts for power in self.powers),
            current_a=mean(power.current_a for power in self.powers),
            voltage_v=mean(power.voltage_v for power in self.powers),
            plugged=self.powers[-1].plugged,
            power_basis=self.power_basis,
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
    meter = battery_meter()
    readings: list[BatteryReading] = []
    clocks: list[float] = []
    has_battery = True
    while True:
        reading = meter.read() if has_battery else None
        has_battery = reading is not None
        readings += [reading] if reading else []
        clocks += [now] if (now := cpu.frequency_mhz()[0]) else []
        left = end - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(SAMPLE_INTERVAL_S, left))
    zone = thermal.from_zones()
    powers = tuple(power for reading in readings if (power := meter.power(reading)))
    basis = meter.decision.basis if readings else ""
    return DeviceReadings(powers, basis, zone.celsius if zone else None, mean(clocks) if clocks else None)


def _resident_bytes() -> int | None:
    pages = (read_text(PROC / "self" / "statm") or "").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None


def thermal_samples(request: StudyRequest, context: StudyContext) -> Iterator[Sample]:
    """On the first available backend, in this process: it is the last part, and emits rows every few seconds."""
    backend = next(iter(context.usable(request)), None)
    if backend is None or not request.thermal_minutes:
        return
    whole_s = request.thermal_minutes * 60
    every_s = min(whole_s / 4, max(MIN_INTERVAL_S, whole_s / MAX_SAMPLES))
    workload = steps.Workload(models.build(THERMAL_NETWORK), backend, context.threads)
    batch = run_isolated(lambda: steps.fitting_batch(workload, request.batch, every_s / 5), context.limits.case_limit_s)
    step = steps.training(workload, batch)
    step()
    began = time.monotonic()
    has_battery = battery_meter().read() is not None
    while (at := time.monotonic() - began) < whole_s:
        step_s = time_steps(step, min_seconds=min(every_s, whole_s - at), warm_up=0)
        yield _sample(workload, batch, time.monotonic() - began, step_s, has_battery=has_battery)


def _sample(workload: steps.Workload, batch: int, at_s: float, step_s: list[float], *, has_battery: bool) -> Sample:
    found = thermal.read_temperature(battery.read_battery)
    reading = battery_meter().read() if has_battery else None
    power = battery_meter().power(reading) if reading else None
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
