"""Does a step take as long as `clusterctl forecast` says? And how much of it is computing, of the paper's ten networks?

    python -m benchmarks.forecast
    python -m benchmarks.forecast --case resnet50:8 --case alexnet:8 --steps 4

Brings up a lab of its own and trains each network on it. The forecast is given what that run measured: how fast a phone
computed, and what the probe at its start found of the line. So it is judged by how it plays communication beside
computing, not by how fast it thinks a phone is. Here all phones share two cores, and communicating takes some of what
would compute; on a phone it has cores of its own. Ends with 1 where a step takes more than a fifth longer or shorter
than forecast.
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
from benchmarks.verdict import Promise, conclude
from orchestrator.forecast.forecast import Forecast, Rack, Rules, forecast
from orchestrator.forecast.phone import phone
from phone_agent.comm.probe import Line
from phone_agent.sizes import FLOAT

CASES = (
    "alexnet:64", "googlenet:12", "inception_v3:8", "mobilenet_v1:12", "mobilenet_v2:12", "resnet50:8", "resnet101:8",
    "resnet152:8", "squeezenet_v1_0:16", "squeezenet_v1_1:24",
)  # fmt: skip
WARM_UP = 3  # steps: after two of them the order of pieces is settled
NEAR = 1.2
DISK = "4g"  # each run leaves a checkpoint
THIS_COMPUTERS = 8e9  # bytes a second of one core here, for updates: an estimate, and of little weight


@dataclass(frozen=True)
class Result:
    batch: int
    compute_s: float  # of the slowest phone
    step_s: float
    foretold: Forecast

    @property
    def efficiency(self) -> float:
        return self.compute_s / self.step_s

    def promises(self) -> Iterator[Promise]:
        ratio = self.step_s / self.foretold.step_s
        what = f"{self.foretold.network}, batch {self.batch}: step to its forecast"
        yield Promise(what, max(ratio, 1 / ratio), "<=", NEAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=4, help="measured, after warming up")
    parser.add_argument("--wire", default="fp32")
    parser.add_argument("--case", action="append", metavar="MODEL:BATCH", help="may be given more than once")
    options = parser.parse_args()
    cases = [case.split(":") for case in options.case or CASES]
    with lab(options.phones, rate=options.rate, disk=DISK):
        results = [measured(model, int(batch), options.steps, options.wire) for model, batch in cases]
    show(options, results)
    conclude(promise for each in results for promise in each.promises())


def measured(model: str, batch: int, steps: int, wire: str) -> Result:
    flags = ("--model", model, "--batch", str(batch), "--steps", str(steps + WARM_UP), "--threads", "1")
    run = launch(*flags, "--data", "synthetic", "--algorithm", "ring", "--wire", wire)
    told = run.of("step")[WARM_UP:]
    compute_s, step_s = (median(float(event[what]) for event in told) for what in ("compute_s", "step_s"))
    found = Result(batch, compute_s, step_s, foretold(run, model, batch, compute_s))
    print(f"{model}: {step_s:.2f} s, forecast {found.foretold.step_s:.2f} s", file=sys.stderr)
    return found


def foretold(run: Run, model: str, batch: int, compute_s: float) -> Forecast:
    (choice,) = run.of("choice")
    graph, ranks = network(model), len(run.spec.ranks)
    rules = Rules(batch, wire=choice["wire"], bucket_bytes=choice["bucket_bytes"], pace=batch / compute_s)
    on = Rack(("sw1",) * ranks, line(choice, ranks, graph.parameter_count))
    return forecast(graph, on, replace(phone(), little_bandwidth=THIS_COMPUTERS), rules)


def line(choice: dict[str, Any], ranks: int, values: int) -> Line:
    """What the probe found, from what the run made of it: see comm.choose."""
    hops = 2 * (ranks - 1)
    encoded = values * FLOAT / (2 if choice["wire"] == "fp16" else 1)
    pieces = max(1, round(values * FLOAT / choice["bucket_bytes"]))
    rate = hops / ranks * encoded / choice["limit_s"]
    return Line((choice["predicted_s"] - choice["limit_s"]) / pieces / hops, rate, rate)


def show(options: argparse.Namespace, results: list[Result]) -> None:
    table = Table(title=f"{options.phones} phones, {options.rate}, {options.wire}: seconds a step")
    for name in ("network", "batch", "computing", "exchange", "step", "forecast", "efficiency", "forecast"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for each in results:
        table.add_row(
            each.foretold.network,
            str(each.batch),
            f"{each.compute_s:.2f}",
            f"{each.foretold.communication_s:.2f}",
            f"{each.step_s:.2f}",
            f"{each.foretold.step_s:.2f}",
            f"{each.efficiency:.1%}",
            f"{each.foretold.efficiency:.1%}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
