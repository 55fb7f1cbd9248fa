"""The search: each part in a separate process, since drivers hang and crash, and with a share of the time budget.

Rows arrive as they are measured; the last one is the best configuration. Using the GPU must pay off by a margin.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.tune import GRACE_S, TIME_SHARES, TuneRequest

MIN_SPEEDUP = 1.1  # of the GPU over the CPU, and of hybrid over either

Row = dict[str, Any]


def search(request: TuneRequest) -> Iterator[Row]:
    measured: list[Row] = []
    for part, share in TIME_SHARES.items():
        if part == "hybrid" and not _measurements(measured, "opencl"):
            continue
        best = fastest(_measurements(measured, "opencl"))
        tiles = best["device_config"]["tiles"] if best else {}
        for row in _in_a_process(part, replace(request, seconds=request.seconds * share, tiles=tiles)):
            measured.append(row)
            yield row
    yield {"part": "best", **_choose(measured)}


def fastest(rows: list[Row]) -> Row | None:
    return max(rows, key=lambda row: float(row["images_per_s"]), default=None)


def _measurements(rows: list[Row], part: str) -> list[Row]:
    return [row for row in rows if row["part"] == part and "images_per_s" in row]


def _choose(rows: list[Row]) -> Row:
    """The CPU unless the GPU is clearly faster; hybrid only if it is clearly faster than both."""
    best: Row | None = None
    for part in ("cpu", "opencl", "hybrid"):
        found = fastest(_measurements(rows, part))
        if found and (best is None or found["images_per_s"] >= MIN_SPEEDUP * best["images_per_s"]):
            best = found
    if best is None:
        raise AgentError("no configuration could be measured", code=ErrorCode.MEASUREMENT_FAILED)
    return {"device_config": best["device_config"], "images_per_s": best["images_per_s"]}


def _in_a_process(part: str, request: TuneRequest) -> Iterator[Row]:
    argv = [sys.executable, "-m", "phone_agent", "tune", json.dumps(asdict(request)), "--part", part]
    limit = request.seconds + GRACE_S
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, text=True)
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        ender = threading.Timer(limit, end)
        ender.start()
        with process:
            try:
                yield from map(json.loads, process.stdout or ())
                code = process.wait()
            finally:
                ender.cancel()
                process.kill()
        complaints.seek(0)
        said = complaints.read().strip().splitlines() or ["it said nothing"]
    if late.is_set():
        yield {"part": part, "what": part, "error": f"not ready after {limit:.0f} s"}
    elif code:
        yield {"part": part, "what": part, "error": f"signal {-code}" if code < 0 else said[-1][:300]}
