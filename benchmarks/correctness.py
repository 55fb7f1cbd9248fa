"""Do four phones train like one process? Compares the losses of ten published networks at the same global batch.

    python -m benchmarks.correctness

Every run is a real `clusterctl launch` in its own lab; one process repeats it from its run.json. Batch normalization
on a phone uses only the images of that phone, so the process computes the batches of the phones one after the other and
adds the gradients in ring order. Then the only difference is where the work is done. With unequal batches, the phones
split the larger ones into micro-batches.

Exits with 1 if losses differ by more than the float32 epsilon (1.2e-7).

Four of the networks have no batch normalization. With dropout disabled, one process also computes their whole global
batch in one pass, with a different summation order. Each step amplifies earlier rounding differences. To measure by how
much, the process trains again from initial weights that are each moved by one unit in the last place, up or down at
random. Losses may differ by at most the largest effect of this over several tries.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.labs import Run, lab, launch
from benchmarks.networks import TABLE_I
from benchmarks.one_process import OneProcess, at_once
from benchmarks.targets import Target, report_targets
from phone_agent import models

PHONES = 4
WITHOUT_DROPOUT = ("alexnet", "googlenet", "squeezenet_v1_0", "squeezenet_v1_1")
RULES = ("--data", "synthetic", "--algorithm", "ring", "--wire", "fp32", "--threads", "1", "--lr", "0.01")
ROUNDINGS = 5  # tries
ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Case:
    """`batch` is the global batch; ten images are split over four phones as 3, 3, 2, 2."""

    name: str
    model: str
    batch: int
    micro_batch: int = 0
    whole: bool = False  # the process computes the global batch in one pass

    def flags(self, steps: int) -> tuple[str, ...]:
        amounts = {"--global-batch": self.batch, "--micro-batch": self.micro_batch, "--steps": steps}
        return ("--model", self.model, *RULES, *(text for flag in amounts.items() for text in map(str, flag)))

    def compare(self, run: Run) -> tuple[float, float]:
        """The largest relative difference to the losses of one process, and the largest that rounding explains."""
        reference = self._one_process(run)
        deviation = difference([step["loss"] for step in run.of("step")], reference)
        if not self.whole:
            return deviation, ROUNDING
        perturbed = (difference(self._one_process(run, seed), reference) for seed in range(ROUNDINGS))
        return deviation, max(ROUNDING, *perturbed)

    def _one_process(self, run: Run, rounding: int | None = None) -> list[float]:
        (choice,) = run.of("comm_plan")
        data = run.spec.data
        graph = models.build(self.model, data.classes, data.input_shape)
        spec = at_once(run.spec) if self.whole else run.spec
        return OneProcess(spec, graph, choice["bucket_bytes"], rounding).losses()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(TABLE_I), choices=list(TABLE_I))
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    with lab(PHONES):
        results = {model: dict(race(model, options.steps)) for model in options.models}
    show(results)
    report_targets(target for targets in results.values() for target in targets.values())


def race(model: str, steps: int) -> Iterator[tuple[str, Target]]:
    for case in cases(model):
        deviation, rounding = case.compare(launch(*case.flags(steps)))
        target = Target(f"{model}, {case.name}: losses differ by", deviation, "<=", rounding)
        print(target, file=sys.stderr)
        yield case.name, target


def cases(model: str) -> Iterator[Case]:
    yield Case("equal batches", model, 8)
    yield Case("unequal batches", model, 10, micro_batch=2)
    if model in WITHOUT_DROPOUT:
        yield Case("whole global batch", f"benchmarks/without_dropout.py:{model}", 10, whole=True)


def difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The largest relative difference; NaN if any loss is NaN."""
    ours, theirs = np.array([losses, reference])
    return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))


def show(results: dict[str, dict[str, Target]]) -> None:
    names = list(dict.fromkeys(name for targets in results.values() for name in targets))
    table = Table(title=f"{PHONES} phones against one process: largest relative difference in loss")
    for column in ("network", *names):
        table.add_column(column, justify="left" if column == "network" else "right")
    for model, targets in results.items():
        table.add_row(model, *(f"{targets[name].value:.1e}" if name in targets else "" for name in names))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
