"""Searches for the fastest device config. Each part runs in a process of its own, since drivers hang and crash, and
gets a fraction of the time.

Rows are yielded as they are measured; the last one is the choice. A config that takes more of the phone must be faster
by a margin.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.tune import GRACE_S, TIME_SHARES, TuneRequest
from phone_agent.device.isolated import IsolatedError, IsolatedProcess

MIN_SPEED_UP = 1.1  # of the GPU over the CPU, and of both over either, to be chosen

Row = dict[str, Any]
Measure = Callable[[str, TuneRequest], Iterable[Row]]


def search(request: TuneRequest, measure: Measure | None = None) -> Iterator[Row]:
    measured: list[Row] = []
    for part, share in TIME_SHARES.items():
        if part == "hybrid" and not _measurements(measured, "opencl"):
            continue
        best = fastest(_measurements(measured, "opencl"))
        tiles = best["device_config"]["tiles"] if best else {}
        for row in (measure or measure_isolated)(part, replace(request, seconds=request.seconds * share, tiles=tiles)):
            measured.append(row)
            yield row
    yield {"part": "best", **_choose(measured)}


def fastest(rows: list[Row]) -> Row | None:
    return max(rows, key=lambda row: float(row["images_per_s"]), default=None)


def _measurements(rows: list[Row], part: str) -> list[Row]:
    return [row for row in rows if row["part"] == part and "images_per_s" in row]


def _choose(rows: list[Row]) -> Row:
    """The CPU unless the GPU is clearly faster; both only if they are clearly faster than either alone."""
    best: Row | None = None
    for part in ("cpu", "opencl", "hybrid"):
        found = fastest(_measurements(rows, part))
        if found and (best is None or found["images_per_s"] >= MIN_SPEED_UP * best["images_per_s"]):
            best = found
    if best is None:
        raise AgentError("no configuration could be measured", code=ErrorCode.MEASUREMENT_FAILED)
    return {"device_config": best["device_config"], "images_per_s": best["images_per_s"]}


def measure_isolated(part: str, request: TuneRequest) -> Iterator[Row]:
    """A command of its own, since it may restart itself to find the vendor's OpenCL driver."""
    argv = [sys.executable, "-m", "phone_agent", "tune", json.dumps(asdict(request)), "--part", part]
    try:
        with IsolatedProcess.spawn(argv, request.seconds + GRACE_S) as process:
            yield from process.rows()
    except IsolatedError as error:
        yield {"part": part, "what": part, "error": str(error)[:300]}
