"""What is measured: training steps of one network, in one way after the other, until the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import DeviceConfig
from phone_agent.contract.tune import TuneRequest
from phone_agent.device import affinity
from phone_agent.tune.search import Row

RUNS = 3
STEPS = (0.5, 2)  # a number of a tile is tried at half and at twice what it is


def measure(part: str, request: TuneRequest) -> Iterator[Row]:
    parts: dict[str, Callable[[TuneRequest], Iterator[Row]]] = {
        "cpu": _processor,
        "opencl": _gpu,
        "hybrid": _both,
        "dense": _dense,
    }
    if part not in parts:
        raise AgentError(f"there is no part '{part}'; there are: {', '.join(parts)}", code=ErrorCode.BAD_REQUEST)
    yield from parts[part](request)


def _processor(request: TuneRequest) -> Iterator[Row]:
    """The big cores, then all that are permitted, then half of the big ones: more cores make more heat."""
    ended = _deadline(request)
    big, *others = affinity.core_sets()
    half = affinity.CoreSet(big.cores[: (len(big.cores) + 1) // 2])
    affinity.pin_to_big_cores()
    for core_set in (big, *others, *([half] if half != big else [])):
        if ended():
            return
        affinity.pin_to_core_set(core_set)
        config = DeviceConfig("cpu", core_set.threads, little_cores=len(core_set.cores) > len(big.cores))
        threads = f"{core_set.threads} thread{'' if core_set.threads == 1 else 's'}"
        what = f"{threads} on {'all' if config.little_cores else 'big'} cores"
        yield _row("cpu", what, config, request)


def _gpu(request: TuneRequest) -> Iterator[Row]:
    """The device's usual tiles; then each number of them smaller and larger, keeping what helps, as time permits."""
    ended = _deadline(request)
    if reason := _unreachable():
        yield {"part": "opencl", "what": "OpenCL", "error": reason}
        return
    affinity.pin_to_big_cores()
    from phone_agent.backends.opencl import device, tiles

    usual = tiles.default_tiles(device.find_device().limits)
    best, best_row = usual, _row("opencl", "usual tiles", DeviceConfig("opencl"), request)
    yield best_row
    for number in fields(usual):
        for factor in STEPS:
            value = max(1, int(getattr(best, number.name) * factor))
            if ended() or value == getattr(best, number.name):
                continue
            tried = replace(best, **{number.name: value})
            changed = {each.name: getattr(tried, each.name) for each in fields(usual) if _differs(tried, usual, each)}
            row = _row(
                "opencl",
                ", ".join(f"{k} {v}" for k, v in changed.items()),
                DeviceConfig("opencl", tiles=changed),
                request,
            )
            yield row
            if row.get("images_per_s", 0.0) > 1.02 * best_row.get("images_per_s", 0.0):
                best, best_row = tried, row


def _differs(tiles: Any, usual: Any, number: Any) -> bool:
    return bool(getattr(tiles, number.name) != getattr(usual, number.name))


def _both(request: TuneRequest) -> Iterator[Row]:
    if reason := _unreachable():
        yield {"part": "hybrid", "what": "both", "error": reason}
        return
    affinity.pin_to_big_cores()
    yield _row("hybrid", "both", DeviceConfig("hybrid", tiles=request.tiles), request)


def _dense(request: TuneRequest) -> Iterator[Row]:
    """numpy's BLAS against our core, for the network's largest fully connected layer, forward and both gradients."""
    threads = affinity.pin_to_big_cores()
    from phone_agent.tune.dense import compare

    yield from compare(request, threads)


def _unreachable() -> str:
    from phone_agent.backends.opencl import driver_path

    return driver_path.prepare_driver()


def _deadline(request: TuneRequest) -> Callable[[], bool]:
    end = time.monotonic() + request.seconds
    return lambda: time.monotonic() > end


def _row(part: str, what: str, config: DeviceConfig, request: TuneRequest) -> Row:
    from phone_agent.tune.steps import timed

    try:
        found = timed(config, request, RUNS)
    except AgentError as error:  # a tile that the device refuses, a network that does not fit
        return {"part": part, "what": what, "error": str(error)[:300]}
    return {
        "part": part,
        "what": what,
        "device_config": asdict(replace(config, gpu_fraction=found.gpu_share)),
        "step_s": found.step_s,
        "images_per_s": request.batch / found.step_s,
    }
