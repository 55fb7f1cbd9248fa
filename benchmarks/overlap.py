"""How much of a step is spent waiting for gradients, with and without overlap.

    python -m benchmarks.overlap --rate 1gbit --steps 8 --case mobilenet_v1:12 --case resnet50:4

Starts its own lab and trains each network in alternating rounds: with communication overlapping computing, and with
communication after it. All other settings are equal, and the best round of each counts. The exposed share comes from
the timeline of the run (median over the rounds); the last column is the share without overlap. All phones use the cores
of this computer, so each phone computes slowly: `--rate` sets the ratio of communication to computing (column `ratio`).
Exits with 1 if more than a tenth of a step is exposed although computing takes at least as long as communication.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.labs import Run, clusterctl, lab, launch
from benchmarks.targets import Target, report_targets

CASES = ("mobilenet_v1:12", "squeezenet_v1_1:12", "resnet50:4", "alexnet:32")  # from few gradients to many
MOST_EXPOSED = 0.10  # where computing takes at least as long as communicating
WARM_UP = 3  # steps


@dataclass(frozen=True)
class Result:
    model: str
    batch: int
    compute_s: float  # of the slowest phone, without overlap
    communication_s: float  # without overlap
    step_s: float
    overlapped_step_s: float
    exposed: float  # share of a step, on the phone that waited longest

    def target(self) -> Target:
        skip_reason = "communication takes longer than computing" if self.communication_s > self.compute_s else ""
        return Target(f"{self.model}, batch {self.batch}: exposed", self.exposed, "<=", MOST_EXPOSED, skip_reason)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=8, help="measured steps, after warm-up")
    parser.add_argument("--rounds", type=int, default=2, help="rounds with and without overlap")
    parser.add_argument("--bucket", default="4MiB", help="gradient bucket size, with and without overlap")
    parser.add_argument("--case", action="append", metavar="MODEL:BATCH", help="may be repeated")
    options = parser.parse_args()
    cases = [case.split(":") for case in options.case or CASES]
    with lab(options.phones, rate=options.rate):
        results = [race(model, int(batch), options) for model, batch in cases]
    show(options, results)
    report_targets(each.target() for each in results)


def race(model: str, batch: int, options: argparse.Namespace) -> Result:
    steps = ("--steps", str(options.steps + WARM_UP))
    flags = ("--model", model, "--batch", str(batch), *steps, "--data", "synthetic", "--threads", "1")
    communication = ("--algorithm", "ring", "--wire", "fp32", "--bucket-size", options.bucket)
    overlapped, plain = [], []
    for _ in range(options.rounds):
        overlapped.append(launch(*flags, *communication))
        plain.append(launch(*flags, *communication, "--no-overlap"))
    return Result(
        model=model,
        batch=batch,
        compute_s=least(plain, "compute_s"),
        communication_s=least(plain, "comm_s"),
        step_s=least(plain, "step_s"),
        overlapped_step_s=least(overlapped, "step_s"),
        exposed=median(max(rank["exposed"] for rank in timeline(run)) for run in overlapped),
    )


def least(runs: list[Run], what: str) -> float:
    return min(typical(run, what) for run in runs)


def typical(run: Run, what: str) -> float:
    return median(float(event[what]) for event in run.of("step")[WARM_UP:])


def timeline(run: Run) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as scratch:
        output = clusterctl("timeline", run.spec.run_id, "--out", str(Path(scratch) / "trace.json"), "--json")
    ranks: list[dict[str, Any]] = json.loads(output)["ranks"]
    return ranks


def show(options: argparse.Namespace, results: list[Result]) -> None:
    table = Table(title=f"{options.phones} phones, {options.rate}: time spent waiting for gradients")
    columns = (
        "network",
        "batch",
        "compute",
        "communication",
        "ratio",
        "step",
        "overlapped",
        "gain",
        "exposed",
        "no overlap",
    )
    for name in columns:
        table.add_column(name, justify="left" if name == "network" else "right")
    for each in results:
        table.add_row(
            each.model,
            str(each.batch),
            f"{each.compute_s:.2f} s",
            f"{each.communication_s:.2f} s",
            f"{each.communication_s / each.compute_s:.0%}",
            f"{each.step_s:.2f} s",
            f"{each.overlapped_step_s:.2f} s",
            f"{each.step_s / each.overlapped_step_s:.2f}x",
            f"{each.exposed:.1%}",
            f"{each.communication_s / each.step_s:.1%}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
