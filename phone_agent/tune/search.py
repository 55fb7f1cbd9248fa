"""The search: each part in a process of its own, since drivers hang and crash, and each with a share of the time.

Rows come as they are measured; the last one is what to do. A way that takes more of the phone must be faster by some.
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

FASTER = 1.1  # than the processor alone, for a GPU to be worth it; and than either, for both

Row = dict[str, Any]


def search(request: TuneRequest) -> Iterator[Row]:
    measured: list[Row] = []
    for part, share in TIME_SHARES.items():
        if part == "hybrid" and not _of(measured, "opencl"):
            continue
        best = fastest(_of(measured, "opencl"))
        tiles = best["device_config"]["tiles"] if best else {}
        for row in _in_a_process(part, replace(request, seconds=request.seconds * share, tiles=tiles)):
            measured.append(row)
            yield row
    yield {"part": "best", **_chosen(measured)}


def fastest(rows: list[Row]) -> Row | None:
    return max(rows, key=lambda row: float(row["images_per_s"]), default=None)


def _of(rows: list[Row], part: str) -> list[Row]:
    return [row for row in rows if row["part"] == part and "images_per_s" in row]


def _chosen(rows: list[Row]) -> Row:
    """The processor, unless another is faster by much; both, unless one alone is about as fast."""
    best: Row | None = None
    for part in ("cpu", "opencl", "hybrid"):
        found = fastest(_of(rows, part))
        if found and (best is None or found["images_per_s"] >= FASTER * best["images_per_s"]):
            best = found
    if best is None:
        raise AgentError("nothing could be measured here", code=ErrorCode.MEASUREMENT_FAILED)
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
