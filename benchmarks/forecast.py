"""Accuracy of `clusterctl forecast`: predicted against measured step time, and the parallel efficiency.

    python -m benchmarks.forecast
    python -m benchmarks.forecast --case resnet50:8 --case alexnet:8 --steps 4

Starts its own lab and trains each network on it, with and without overlap of communication and computing. The forecast
gets the computing speed of the phones and the link speed measured in that run, so only its model of communication is
tested, not its model of a phone. All phones share the cores of this computer, so communication slows down computing; a
real phone has separate cores for it. Exits with 1 if a step takes more than a sixth longer or shorter than forecast.
The column `step / computing` shows the error of a forecast that ignores communication.
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
OVERLAP_FLAGS: dict[str, tuple[str, ...]] = {"overlap": (), "no overlap": ("--no-overlap",)}
WARM_UP = 3  # steps: the bucket order is final after two of them
MAX_RATIO = 7 / 6
HOST_BANDWIDTH = 8e9  # bytes per second of one core of this computer, for weight updates: a rough estimate


@dataclass(frozen=True)
class Result:
    mode: str  # a key of OVERLAP_FLAGS
    batch: int
    compute_s: float  # of the slowest phone
    step_s: float
    prediction: Forecast

    @property
    def efficiency(self) -> float:
        return self.compute_s / self.step_s

    def targets(self) -> Iterator[Target]:
        ratio = self.step_s / self.prediction.step_s
        name = f"{self.prediction.network}, batch {self.batch}, {self.mode}: step time / forecast"
        yield Target(name, max(ratio, 1 / ratio), "<=", MAX_RATIO)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=4, help="measured steps, after warm-up")
    parser.add_argument("--wire", default="fp32")
    parser.add_argument("--case", action="append", metavar="MODEL:BATCH", help="may be repeated")
    options = parser.parse_args()
    cases = [case.split(":") for case in options.case or CASES]
    with lab(options.phones, rate=options.rate):
        results = [
            measure(model, int(batch), mode, options.steps, options.wire)
            for model, batch in cases
            for mode in OVERLAP_FLAGS
        ]
    show(options, results)
    report_targets(target for each in results for target in each.targets())


def measure(model: str, batch: int, mode: str, steps: int, wire: str) -> Result:
    flags = ("--model", model, "--batch", str(batch), "--steps", str(steps + WARM_UP), "--threads", "1")
    run = launch(*flags, *OVERLAP_FLAGS[mode], "--data", "synthetic", "--algorithm", "ring", "--wire", wire)
    events = run.of("step")[WARM_UP:]
    compute_s, step_s = (median(float(event[field]) for event in events) for field in ("compute_s", "step_s"))
    result = Result(mode, batch, compute_s, step_s, predict(run, model, batch, compute_s))
    print(f"{model}, {mode}: {step_s:.2f} s, forecast {result.prediction.step_s:.2f} s", file=sys.stderr)
    return result


def predict(run: Run, model: str, batch: int, compute_s: float) -> Forecast:
    (comm_plan,) = run.of("comm_plan")
    graph, ranks = network(model), len(run.spec.ranks)
    chosen = {name: comm_plan[name] for name in ("algorithm", "wire", "bucket_bytes")}
    setup = TrainingSetup(batch, **chosen, overlap=run.spec.communication.overlap, images_per_s=batch / compute_s)
    rack = RackModel(("sw1",) * ranks, link_profile(comm_plan, ranks, graph.parameter_count))
    return forecast(graph, rack, replace(load_phone_model(), little_bandwidth=HOST_BANDWIDTH), setup)


def link_profile(comm_plan: dict[str, Any], ranks: int, values: int) -> LinkProfile:
    """The link profile that the run measured, derived from its communication plan (see comm.autotune)."""
    hops = 2 * (ranks - 1)
    encoded = values * FLOAT / (2 if comm_plan["wire"] == "fp16" else 1)
    buckets = max(1, round(values * FLOAT / comm_plan["bucket_bytes"]))
    rate = hops / ranks * encoded / comm_plan["limit_s"]
    return LinkProfile((comm_plan["predicted_s"] - comm_plan["limit_s"]) / buckets / hops, rate, rate)


def show(options: argparse.Namespace, results: list[Result]) -> None:
    table = Table(title=f"{options.phones} phones, {options.rate}, {options.wire}: seconds per step")
    columns = ("network", "batch", "mode", "computing", "communication", "step", "forecast", "efficiency", "forecast")
    for name in (*columns, "step / computing"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for each in results:
        table.add_row(
            each.prediction.network,
            str(each.batch),
            each.mode,
            f"{each.compute_s:.2f}",
            f"{each.prediction.communication_s:.2f}",
            f"{each.step_s:.2f}",
            f"{each.prediction.step_s:.2f}",
            f"{each.efficiency:.1%}",
            f"{each.prediction.efficiency:.1%}",
            f"{each.step_s / each.compute_s:.2f}",
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
