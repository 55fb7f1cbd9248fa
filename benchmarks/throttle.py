"""A phone falls to a third of its speed in mid-run: does the step's time recover?

    python -m benchmarks.throttle --model resnet20 --batch 32 --share 0.33

Brings up a lab of its own, trains, throttles the second phone, and heals it again. Shown is the median step before,
between the throttling and the first change of shares, after the last one, and after healing. The ideal is what phones
of these speeds need when each image is computed by whoever is free first: K / (K - 1 + share) of the time before. On
two cores, two phones: each computes on one of its own.
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
MOST = 1.2  # of the ideal
PATIENCE_S = 300.0
VICTIM = "p1-02"


@dataclass(frozen=True)
class Moments:
    """Seconds since the epoch on the phones' clock, which is this computer's: when the fault came and went."""

    throttled: float
    healed: float
    ended: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=2)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=32, help="images a phone and step, at first")
    parser.add_argument("--share", type=float, default=0.33, help="of its speed that the throttled phone keeps")
    parser.add_argument("--seconds", type=float, default=20.0, help="of steps that are measured each time")
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
            until(run, "another share", lambda events: bool(of(events, "rebalance")))
            time.sleep(options.seconds)
            healed, before = time.time(), len(of(known(), "rebalance"))
            clusterctl("lab", "set", VICTIM, "throttle=1")
            until(run, "the old share", lambda events: len(of(events, "rebalance")) > before)
            time.sleep(options.seconds)
            ended = time.time()
        finally:
            clusterctl("stop")
    return Moments(throttled, healed, ended), known()


def until(run: subprocess.Popen[bytes], what: str, there: Callable[[list[dict[str, Any]]], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not there(known()):
        if run.poll() is not None:
            sys.exit(f"the run ended while waiting for {what}")
        if time.monotonic() > deadline:
            sys.exit(f"no {what} within {PATIENCE_S:.0f} s")
        time.sleep(0.5)


def known() -> list[dict[str, Any]]:
    """What the host has heard of the only run there is."""
    runs: Path = ClusterState(CLUSTER).runs
    lines = [line for path in sorted(runs.glob("*/events.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def show(options: argparse.Namespace, moments: Moments, events: list[dict[str, Any]]) -> int:
    shares, steps = of(events, "rebalance"), of(events, "step")[WARM_UP:]
    slow = [change for change in shares if moments.throttled < change["time"] < moments.healed]
    settled, undone = slow[-1]["time"] + 1, shares[-1]["time"] + 1
    before = typical(steps, 0, moments.throttled)
    unbalanced = typical(steps, moments.throttled + 0.5, slow[0]["time"])
    after = typical(steps, settled, moments.healed)
    healed = typical(steps, undone, moments.ended)
    late = slow[0]["time"] - moments.throttled
    ideal = before * options.phones / (options.phones - 1 + options.share)
    for change in shares:
        print(f"  from step {change['step']}: {change['why']}")
    print(f"before              {before:.3f} s a step")
    print(f"throttled to {options.share:<6.2f} {unbalanced:.3f} s a step, {unbalanced / before:.2f}x")
    print(f"rebalanced          {after:.3f} s a step, {after / before:.2f}x, after {late:.0f} s")
    print(f"ideal               {ideal:.3f} s a step, {ideal / before:.2f}x")
    print(f"healed              {healed:.3f} s a step, {healed / before:.2f}x")
    print(f"rebalanced / ideal  {after / ideal:.2f} (at most {MOST})")
    return 0 if after <= MOST * ideal else 1


def typical(steps: list[dict[str, Any]], since: float, until_: float) -> float:
    """The mean over the middle: a throttled phone runs and stands still in turns, so the median would hide it."""
    times = sorted(float(step["step_s"]) for step in steps if since <= step["time"] <= until_)
    if not times:
        return float("nan")
    cut = len(times) // 10
    middle = times[cut : len(times) - cut] or [median(times)]
    return sum(middle) / len(middle)


if __name__ == "__main__":
    main()
