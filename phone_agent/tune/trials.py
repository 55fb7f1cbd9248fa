"""The measurements: training steps with one device config after the other, until the time budget is used up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from typing import Any

from phone_agent.contract.errors import AgentError, BadRequestError
from phone_agent.contract.schema import DeviceConfig
from phone_agent.contract.tune import TuneRequest
from phone_agent.device import affinity
from phone_agent.tune.search import Row

RUNS = 3
TILE_FACTORS = (0.5, 2)  # each tile parameter is tried at half and twice its value


def measure(part: str, request: TuneRequest) -> Iterator[Row]:
    parts: dict[str, Callable[[TuneRequest], Iterator[Row]]] = {
        "cpu": _cpu,
        "opencl": _gpu,
        "hybrid": _hybrid,
        "dense": _dense,
    }
    if part not in parts:
        raise BadRequestError(f"unknown part '{part}'; choose from: {', '.join(parts)}")
    yield from parts[part](request)


def _cpu(request: TuneRequest) -> Iterator[Row]:
    """The big cores, then all permitted cores, then half of the big cores, which may throttle less."""
    expired = _deadline(request)
    big, *others = affinity.core_sets()
    half = affinity.CoreSet(big.cores[: (len(big.cores) + 1) // 2])
    affinity.pin_to_big_cores()
    for core_set in (big, *others, *([half] if half != big else [])):
        if expired():
            return
        affinity.pin_to_core_set(core_set)
        config = DeviceConfig("cpu", core_set.threads, little_cores=len(core_set.cores) > len(big.cores))
        threads = f"{core_set.threads} thread{'' if core_set.threads == 1 else 's'}"
        what = f"{threads} on {'all' if config.little_cores else 'big'} cores"
        yield _row("cpu", what, config, request)


def _gpu(request: TuneRequest) -> Iterator[Row]:
    """Coordinate search: starts from the default tiles, halves and doubles each parameter, keeps improvements."""
    expired = _deadline(request)
    if reason := _gpu_unavailable():
        yield {"part": "opencl", "what": "OpenCL", "error": reason}
        return
    affinity.pin_to_big_cores()
    from phone_agent.backends.opencl import device, tiles

    default = tiles.default_tiles(device.find_device().limits)
    best, best_row = default, _row("opencl", "default tiles", DeviceConfig("opencl"), request)
    yield best_row
    for parameter in fields(default):
        for factor in TILE_FACTORS:
            value = max(1, int(getattr(best, parameter.name) * factor))
            if expired() or value == getattr(best, parameter.name):
                continue
            trial = replace(best, **{parameter.name: value})
            changed = {
                each.name: getattr(trial, each.name) for each in fields(default) if _differs(trial, default, each)
            }
            row = _row(
                "opencl",
                ", ".join(f"{k} {v}" for k, v in changed.items()),
                DeviceConfig("opencl", tiles=changed),
                request,
            )
            yield row
            if row.get("images_per_s", 0.0) > 1.02 * best_row.get("images_per_s", 0.0):
                best, best_row = trial, row


def _differs(tiles: Any, default: Any, parameter: Any) -> bool:
    return bool(getattr(tiles, parameter.name) != getattr(default, parameter.name))


def _hybrid(request: TuneRequest) -> Iterator[Row]:
    if reason := _gpu_unavailable():
        yield {"part": "hybrid", "what": "CPU and GPU", "error": reason}
        return
    affinity.pin_to_big_cores()
    yield _row("hybrid", "CPU and GPU", DeviceConfig("hybrid", tiles=request.tiles), request)


def _dense(request: TuneRequest) -> Iterator[Row]:
    """The BLAS of numpy against the core, on the largest dense layer of the model, forward and backward."""
    threads = affinity.pin_to_big_cores()
    from phone_agent.tune.dense import compare

    yield from compare(request, threads)


def _gpu_unavailable() -> str:
    from phone_agent.backends.opencl import driver_path

    return driver_path.prepare_driver()


def _deadline(request: TuneRequest) -> Callable[[], bool]:
    end = time.monotonic() + request.seconds
    return lambda: time.monotonic() > end


def _row(part: str, what: str, config: DeviceConfig, request: TuneRequest) -> Row:
    from phone_agent.tune.steps import time_config

    try:
        timing = time_config(config, request, RUNS)
    except AgentError as error:  # the device rejects a tile, or the model does not fit
        return {"part": part, "what": what, "error": str(error)[:300]}
    return {
        "part": part,
        "what": what,
        "device_config": asdict(replace(config, gpu_fraction=timing.gpu_share)),
        "step_s": timing.step_s,
        "images_per_s": request.batch / timing.step_s,
    }
