"""Does a step take as long as `clusterctl forecast` says? And how much of it is computing, of the paper's ten networks?

    python -m benchmarks.forecast
    python -m benchmarks.forecast --case resnet50:8 --case alexnet:8 --steps 4

Brings up a lab of its own and trains each network on it: with communication beside computing, and after it. The
forecast is given what that run measured: how fast a phone computed, and what the probe at its start found of the line.
So it is judged by what it makes of communication, not by how fast it thinks a phone is. Here all phones share two
cores, and communicating takes some of what would compute; on a phone it has cores of its own. Ends with 1 where a step
takes more than a sixth longer or shorter than forecast. The column `without` is a step's time to its computing alone:
what a forecast of nothing else would be off by.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.labs import Run, lab, launch
from benchmarks.networks import network
from benchmarks.targets import Target, report_targets
from orchestrator.plan.forecast.device_model import load_phone_model
from orchestrator.plan.forecast.forecast import Forecast, RackModel, TrainingSetup, forecast
from phone_agent.comm.link_probe import LinkProfile
from phone_agent.contract.sizes import FLOAT

CASES = ("alexnet:32", "googlenet:12", "mobilenet_v1:12", "mobilenet_v2:12", "resnet50:4", "squeezenet_v1_1:24")
WAYS: dict[str, tuple[str, ...]] = {"beside": (), "after": ("--no-overlap",)}
WARM_UP = 3  # steps: after two of them the order of pieces is settled
NEAR = 7 / 6
THIS_COMPUTERS = 8e9  # bytes a second of one core here, for updates: an estimate, and of little weight


@dataclass(frozen=True)
class Result:
    way: str  # of WAYS
    batch: int
    compute_s: float  # of the slowest phone
    step_s: float
    foretold: Forecast

    @property
    def efficiency(self) -> float:
        return self.compute_s / self.step_s

    def targets(self) -> Iterator[Target]:
        ratio = self.step_s / self.foretold.step_s
        what = f"{self.foretold.network}, batch {self.batch}, communication {self.way} computing: step to its forecast"
        yield Target(what, max(ratio, 1 / ratio), "<=", NEAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=4, help="measured, after warming up")
    parser.add_argument("--wire", default="fp32")
    parser.add_argument("--case", action="append", metavar="MODEL:BATCH", help="may be given more than once")
    options = parser.parse_args()
    cases = [case.split(":") for case in options.case or CASES]
    with lab(options.phones, rate=options.rate):
        results = [
            measured(model, int(batch), way, options.steps, options.wire) for model, batch in cases for way in WAYS
        ]
    show(options, results)
    report_targets(target for each in results for target in each.targets())


def measured(model: str, batch: int, way: str, steps: int, wire: str) -> Result:
    flags = ("--model", model, "--batch", str(batch), "--steps", str(steps + WARM_UP), "--threads", "1")
    run = launch(*flags, *WAYS[way], "--data", "synthetic", "--algorithm", "ring", "--wire", wire)
    told = run.of("step")[WARM_UP:]
    compute_s, step_s = (median(float(event[what]) for event in told) for what in ("compute_s", "step_s"))
    found = Result(way, batch, compute_s, step_s, foretold(run, model, batch, compute_s))
    print(f"{model}, {way}: {step_s:.2f} s, forecast {found.foretold.step_s:.2f} s", file=sys.stderr)
    return found


def foretold(run: Run, model: str, batch: int, compute_s: float) -> Forecast:
    (choice,) = run.of("comm_plan")
    graph, ranks = network(model), len(run.spec.ranks)
    chosen = {name: choice[name] for name in ("algorithm", "wire", "bucket_bytes")}
    rules = TrainingSetup(batch, **chosen, overlap=run.spec.communication.overlap, images_per_s=batch / compute_s)
    on = RackModel(("sw1",) * ranks, line(choice, ranks, graph.parameter_count))
    return forecast(graph, on, replace(load_phone_model(), little_bandwidth=THIS_COMPUTERS), rules)


def line(choice: dict[str, Any], ranks: int, values: int) -> LinkProfile:
    """What the probe found, from what the run made of it: see comm.choose."""
    hops = 2 * (ranks - 1)
    encoded = values * FLOAT / (2 if choice["wire"] == "fp16" else 1)
    pieces = max(1, round(values * FLOAT / choice["bucket_bytes"]))
    rate = hops / ranks * encoded / choice["limit_s"]
    return LinkProfile((choice["predicted_s"] - choice["limit_s"]) / pieces / hops, rate, rate)


def show(options: argparse.Namespace, results: list[Result]) -> None:
    table = Table(title=f"{options.phones} phones, {options.rate}, {options.wire}: seconds a step")
    columns = ("network", "batch", "way", "computing", "exchange", "step", "forecast", "efficiency", "forecast")
    for name in (*columns, "without"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for each in results:
        table.add_row(
            each.foretold.network,
            str(each.batch),
            each.way,
            f"{each.compute_s:.2f}",
            f"{each.foretold.communication_s:.2f}",
            f"{each.step_s:.2f}",
            f"{each.foretold.step_s:.2f}",
            f"{each.efficiency:.1%}",
            f"{each.foretold.efficiency:.1%}",
            f"{each.step_s / each.compute_s:.2f}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
