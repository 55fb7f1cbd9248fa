"""How much of a step waits for gradients, with and without overlap?

    python -m benchmarks.overlap --rate 1gbit --steps 8 --case mobilenet_v1:12 --case resnet50:4

Brings up a lab of its own and trains each network in turns: with communication beside computing, and after it; all
else is the same, and the best turn of each counts. What is exposed is read off the run's own timeline, at the median of
the turns; beside it stands what would be without overlap. All phones share this computer's cores, so a phone computes
slowly: `--rate` decides how much of computing communication would take, see the column `share`. Ends with 1 where more
than a tenth of a step is exposed although computing takes as long as communicating.
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
from benchmarks.verdict import Promise, conclude

CASES = ("mobilenet_v1:12", "squeezenet_v1_1:12", "resnet50:4", "alexnet:32")  # from little to send to much
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
    exposed: float  # of a step, on the phone that waited most

    def promise(self) -> Promise:
        excuse = "communicating takes longer than computing" if self.communication_s > self.compute_s else ""
        return Promise(f"{self.model}, batch {self.batch}: exposed", self.exposed, "<=", MOST_EXPOSED, excuse)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=8, help="measured, after warming up")
    parser.add_argument("--rounds", type=int, default=2, help="turns each way gets")
    parser.add_argument("--bucket", default="4MiB", help="gradients sent at once, both ways")
    parser.add_argument("--case", action="append", metavar="MODEL:BATCH", help="may be given more than once")
    options = parser.parse_args()
    cases = [case.split(":") for case in options.case or CASES]
    with lab(options.phones, rate=options.rate):
        results = [race(model, int(batch), options) for model, batch in cases]
    show(options, results)
    conclude(each.promise() for each in results)


def race(model: str, batch: int, options: argparse.Namespace) -> Result:
    steps = ("--steps", str(options.steps + WARM_UP))
    flags = ("--model", model, "--batch", str(batch), *steps, "--data", "synthetic", "--threads", "1")
    way = ("--algorithm", "ring", "--wire", "fp32", "--bucket-size", options.bucket)
    overlapped, plain = [], []
    for _ in range(options.rounds):
        overlapped.append(launch(*flags, *way))
        plain.append(launch(*flags, *way, "--no-overlap"))
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
        told = clusterctl("timeline", run.spec.run_id, "--out", str(Path(scratch) / "trace.json"), "--json")
    ranks: list[dict[str, Any]] = json.loads(told)["ranks"]
    return ranks


def show(options: argparse.Namespace, results: list[Result]) -> None:
    table = Table(title=f"{options.phones} phones, {options.rate}: what waits for gradients")
    columns = ("network", "batch", "compute", "exchange", "share", "step", "overlapped", "gain", "exposed", "without")
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
