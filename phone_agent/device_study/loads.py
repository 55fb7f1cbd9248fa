"""What the device does and takes from its battery at rest, in inference and in training."""

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
from phone_agent.device_study.cases import Means

NO_BATTERY = "battery power is not to be had: there is no battery, or it does not tell current and voltage"
LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Looks:
    """What was seen from outside, some times, while others worked."""

    powers: tuple[Power, ...]
    temperature_c: float | None
    frequency_mhz: float | None

    def added_to(self, load: Load) -> Load:
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


def loads(request: StudyRequest, means: Means) -> Iterator[Load]:
    yield _rest(means.pace.load_s)
    for name in request.models:
        for backend in means.usable(request):
            place = steps.Place(models.build(name), backend, means.threads)
            for activity in ("inference", "training"):
                yield _busy(place, activity, request.batch, means)


def _rest(seconds: float) -> Load:
    before = time.process_time()
    seen = look(seconds)
    share = (time.process_time() - before) / seconds
    return seen.added_to(Load("rest", "", "", seconds, share, _resident_bytes()))


def _busy(place: steps.Place, activity: str, batch: int, means: Means) -> Load:
    pace, name = means.pace, place.graph.name
    try:
        batch = run_isolated(lambda: steps.fitting_batch(place, batch, pace.model_step_s / 2), pace.case_limit_s)
        make = steps.training if activity == "training" else steps.inference
        work = steps.repeating(lambda: make(place, batch), pace.load_s)
        with IsolatedProcess.fork(work, pace.case_limit_s) as process:
            process.wait_until_ready()
            process.release()
            seen = look(pace.load_s)
            found = steps.Repeats(**process.result())
    except IsolatedError as error:
        return Load(activity, name, place.backend, 0.0, None, None, why=str(error), code=error.code)
    share = found.cpu_s / found.wall_s
    return seen.added_to(Load(activity, name, place.backend, found.wall_s, share, found.resident_bytes))


def look(seconds: float) -> Looks:
    """Takes that long; the battery is asked about once a second, and not again where it does not answer."""
    end = time.monotonic() + seconds
    powers: list[Power] = []
    clocks: list[float] = []
    asking = True
    while True:
        power = read_power() if asking else None
        asking = power is not None
        powers += [power] if power else []
        clocks += [now] if (now := cpu.frequency_mhz()[0]) else []
        left = end - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(LOOK_EVERY_S, left))
    zone = thermal.from_zones()
    return Looks(tuple(powers), zone.celsius if zone else None, mean(clocks) if clocks else None)


def _resident_bytes() -> int | None:
    pages = (read_text(PROC / "self" / "statm") or "").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None
