"""Load balancing: does the step time recover when a phone drops to a third of its speed during a run?

    python -m benchmarks.throttle --model resnet20 --batch 32 --share 0.33

Starts its own lab, trains, throttles the second phone, and restores it. Reports the typical step time before the
throttling, between the throttling and the first rebalancing, after the last rebalancing, and after the restoration. The
ideal step time with perfect load balancing is K / (K - 1 + share) of the time before. On a computer with two cores, use
two phones, so that each has a core to itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.labs import CLUSTER, clusterctl, lab
from orchestrator.paths import ClusterState

WARM_UP = 5  # steps
MAX_RATIO = 1.2  # to the ideal step time
PATIENCE_S = 300.0
VICTIM = "p1-02"


@dataclass(frozen=True)
class Moments:
    """When the throttling began and ended, in seconds since the epoch; phones and host share one clock."""

    throttled: float
    restored: float
    ended: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=2)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=32, help="initial batch size per phone")
    parser.add_argument(
        "--share", type=float, default=0.33, help="fraction of its speed that the throttled phone keeps"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each measurement")
    options = parser.parse_args()
    with lab(options.phones):
        moments, events = disturbed_run(options)
    sys.exit(show(options, moments, events))


def disturbed_run(options: argparse.Namespace) -> tuple[Moments, list[dict[str, Any]]]:
    flags = ("--model", options.model, "--batch", str(options.batch), "--steps", "1000000", "--data", "synthetic")
    command = [sys.executable, "-m", "orchestrator.cli.app", "launch", *flags, "--threads", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
        try:
            until(run, "steps", lambda events: len(of(events, "step")) > WARM_UP)
            time.sleep(options.seconds)
            throttled = time.time()
            clusterctl("lab", "set", VICTIM, f"throttle={options.share}")
            until(run, "a rebalancing", lambda events: bool(of(events, "rebalance")))
            time.sleep(options.seconds)
            restored, before = time.time(), len(of(recorded_events(), "rebalance"))
            clusterctl("lab", "set", VICTIM, "throttle=1")
            until(run, "the rebalancing after the restoration", lambda events: len(of(events, "rebalance")) > before)
            time.sleep(options.seconds)
            ended = time.time()
        finally:
            clusterctl("stop")
    return Moments(throttled, restored, ended), recorded_events()


def until(run: subprocess.Popen[bytes], what: str, reached: Callable[[list[dict[str, Any]]], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached(recorded_events()):
        if run.poll() is not None:
            sys.exit(f"the run ended while waiting for {what}")
        if time.monotonic() > deadline:
            sys.exit(f"timed out waiting for {what}: {PATIENCE_S:.0f} s")
        time.sleep(0.5)


def recorded_events() -> list[dict[str, Any]]:
    """The events that the host has recorded for the only run."""
    runs: Path = ClusterState(CLUSTER).runs
    lines = [line for path in sorted(runs.glob("*/events.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def show(options: argparse.Namespace, moments: Moments, events: list[dict[str, Any]]) -> int:
    changes, steps = of(events, "rebalance"), of(events, "step")[WARM_UP:]
    slow = [change for change in changes if moments.throttled < change["time"] < moments.restored]
    rebalanced, rebalanced_again = slow[-1]["time"] + 1, changes[-1]["time"] + 1
    before = typical(steps, 0, moments.throttled)
    unbalanced = typical(steps, moments.throttled + 0.5, slow[0]["time"])
    after = typical(steps, rebalanced, moments.restored)
    restored = typical(steps, rebalanced_again, moments.ended)
    late = slow[0]["time"] - moments.throttled
    ideal = before * options.phones / (options.phones - 1 + options.share)
    for change in changes:
        print(f"  from step {change['step']}: {change['why']}")
    print(f"before              {before:.3f} s per step")
    print(f"throttled to {options.share:<6.2f} {unbalanced:.3f} s per step, {unbalanced / before:.2f}x")
    print(f"rebalanced          {after:.3f} s per step, {after / before:.2f}x, after {late:.0f} s")
    print(f"ideal               {ideal:.3f} s per step, {ideal / before:.2f}x")
    print(f"restored            {restored:.3f} s per step, {restored / before:.2f}x")
    print(f"rebalanced / ideal  {after / ideal:.2f} (at most {MAX_RATIO})")
    return 0 if after <= MAX_RATIO * ideal else 1


def typical(steps: list[dict[str, Any]], since: float, until_: float) -> float:
    """Trimmed mean: a throttled phone alternates between running and pausing, which the median would hide."""
    times = sorted(float(step["step_s"]) for step in steps if since <= step["time"] <= until_)
    if not times:
        return float("nan")
    cut = len(times) // 10
    middle = times[cut : len(times) - cut] or [median(times)]
    return sum(middle) / len(middle)


if __name__ == "__main__":
    main()
