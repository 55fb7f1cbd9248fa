"""Do four phones train as one process does? Ten networks as published, the same global batch, five steps: the losses.

    python -m benchmarks.correctness

Every run is a real `clusterctl launch` in a lab of its own; one process repeats it from its run.json. Every phone
normalises by its own images, which no process with the whole batch does; so the one process takes the phones' batches
in turn, and adds up the gradients in the order of the ring. Then nothing but where it is computed differs. Of unequal
batches, phones compute the larger ones in parts.

Ends with 1 where losses differ by more than float32 rounds to (1.2e-7).

Four of the networks do not normalize. There, with nothing dropped, one process also computes the whole global batch at
once, and adds in whatever order that brings. A step magnifies how the ones before it were rounded: how much is found by
training again from first values each of which is rounded up or down by one more bit, at random. Losses may differ by
the most that this does in some tries.
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
from benchmarks.verdict import Promise, conclude
from phone_agent import models

PHONES = 4
WITHOUT_DROPOUT = ("alexnet", "googlenet", "squeezenet_v1_0", "squeezenet_v1_1")
RULES = ("--data", "synthetic", "--algorithm", "ring", "--wire", "fp32", "--threads", "1", "--lr", "0.01")
ROUNDINGS = 5  # tries
ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Case:
    """`batch` is of all phones together; ten images are dealt to four of them as 3, 3, 2, 2."""

    name: str
    model: str
    batch: int
    micro_batch: int = 0
    whole: bool = False  # the process computes it at once

    def flags(self, steps: int) -> tuple[str, ...]:
        amounts = {"--global-batch": self.batch, "--micro-batch": self.micro_batch, "--steps": steps}
        return ("--model", self.model, *RULES, *(text for flag in amounts.items() for text in map(str, flag)))

    def judge(self, run: Run) -> tuple[float, float]:
        """The largest difference of a step's loss, relative to the one process's; and the largest that is rounding."""
        wanted = self._alone(run)
        apart = difference([step["loss"] for step in run.of("step")], wanted)
        if not self.whole:
            return apart, ROUNDING
        otherwise = (difference(self._alone(run, seed), wanted) for seed in range(ROUNDINGS))
        return apart, max(ROUNDING, *otherwise)

    def _alone(self, run: Run, rounding: int | None = None) -> list[float]:
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
        found = {model: dict(race(model, options.steps)) for model in options.models}
    show(found)
    conclude(promise for of_model in found.values() for promise in of_model.values())


def race(model: str, steps: int) -> Iterator[tuple[str, Promise]]:
    for case in cases(model):
        apart, rounding = case.judge(launch(*case.flags(steps)))
        promise = Promise(f"{model}, {case.name}: losses differ by", apart, "<=", rounding)
        print(promise, file=sys.stderr)
        yield case.name, promise


def cases(model: str) -> Iterator[Case]:
    yield Case("equal batches", model, 8)
    yield Case("unequal batches", model, 10, micro_batch=2)
    if model in WITHOUT_DROPOUT:
        yield Case("global batch at once", f"benchmarks/without_dropout.py:{model}", 10, whole=True)


def difference(found: Sequence[float], wanted: Sequence[float]) -> float:
    """The largest; not a number where one of them is none."""
    ours, theirs = np.array([found, wanted])
    return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))


def show(found: dict[str, dict[str, Promise]]) -> None:
    names = list(dict.fromkeys(name for of_model in found.values() for name in of_model))
    table = Table(title=f"{PHONES} phones against one process: largest relative difference of losses")
    for column in ("network", *names):
        table.add_column(column, justify="left" if column == "network" else "right")
    for model, of_model in found.items():
        table.add_row(model, *(f"{of_model[name].value:.1e}" if name in of_model else "" for name in names))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
