"""CIFAR-10 accuracy on four phones and in PyTorch, with the same initial weights, sample order and recipe.

    python -m benchmarks.accuracy --torch-python .venv/bin/python --out docs/results/accuracy.json
    python -m benchmarks.accuracy_plot docs/results/accuracy.json docs/results/accuracy.svg

Every run is a real `clusterctl launch` in its own lab. PyTorch repeats the fp32 runs from their run.json (see
phones_in_torch.py). Each other variant changes one setting: the gradient wire format or, over more epochs, the batch
size. Two programs that round differently diverge after a few hundred steps, as two seeds do, so every variant runs with
several seeds and the means are compared. Exits with 1 if phones and PyTorch differ by more than half a percentage
point, if a variant is worse than its baseline by more than that, or if a requested run is missing.

Every result is saved as soon as it is available: run again with the same --out to continue. Results with other settings
(phones, network, flags, epochs) stay in the file and are ignored.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import cifar
from benchmarks.labs import clusterctl, lab, launch
from benchmarks.peers import Peer, torch_python
from benchmarks.targets import Target, report_targets
from phone_agent.contract.schema import RunSpec

PHONES, MODEL, SAMPLES = 4, "benchmarks/small_resnet.py:build", 50_000
PHONES_SIDE, TORCH_SIDE = SIDES = ("clusterctl", "PyTorch")
WIRES, LARGE_BATCH = GROUPS = ("wires", "large-batch")
EARLY = 5  # steps before rounding differences make the losses diverge
TOLERANCE = 0.5  # percentage points
NOT_REQUESTED = "not requested"


@dataclass(frozen=True)
class Variant:
    """Groups differ in epochs: a large batch has few steps per epoch. `baseline` names the variant to compare
    with."""

    name: str
    group: str
    batch: int  # global batch
    epochs: int
    flags: tuple[str, ...]
    warmup: float = 0.5  # epochs
    baseline: str = ""
    by_torch: bool = False


SGD = ("--optimizer", "nesterov", "--lr", "0.2", "--weight-decay", "0.0005")
LARS = (
    "--optimizer",
    "lars",
    "--lr",
    "1.0",
    "--lars-coefficient",
    "0.02",
    "--weight-decay",
    "0.0005",
    "--micro-batch",
    "32",
)
VARIANTS = (
    Variant("fp32", WIRES, 128, 3, (*SGD, "--wire", "fp32"), by_torch=True),
    Variant("fp16", WIRES, 128, 3, (*SGD, "--wire", "fp16"), baseline="fp32"),
    Variant("int8", WIRES, 128, 3, (*SGD, "--wire", "int8"), baseline="fp32"),
    Variant("powersgd", WIRES, 128, 3, (*SGD, "--wire", "powersgd"), baseline="fp32"),
    Variant("batch 128", LARGE_BATCH, 128, 10, (*SGD, "--wire", "fp32")),
    Variant("batch 512, LARS", LARGE_BATCH, 512, 10, (*LARS, "--wire", "fp32"), warmup=1, baseline="batch 128"),
)
NAMES = tuple(variant.name for variant in VARIANTS)


@dataclass(frozen=True)
class Training:
    """A variant with the other settings that determine its result."""

    variant: Variant
    model: str
    epochs: int

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of `clusterctl launch`, without the seed."""
        variant, steps_per_epoch = self.variant, SAMPLES // self.variant.batch
        task = ("--model", self.model, "--data", "cifar10", "--global-batch", str(variant.batch))
        steps = ("--steps", str(self.epochs * steps_per_epoch), "--eval-every", str(steps_per_epoch))
        schedule = ("--schedule", "cosine", "--warmup-steps", str(int(variant.warmup * steps_per_epoch)))
        return (*task, *steps, *schedule, *variant.flags)

    @cached_property
    def setting(self) -> str:
        """Identifies comparable results. A model defined in a file is identified by the hash of that file."""
        file, colon, _ = self.model.rpartition(":")
        digest = f", {hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]}" if colon else ""
        return f"{PHONES} phones{digest}, {' '.join(self.flags)}"


@dataclass(frozen=True)
class Result:
    """`judged` holds the evaluations, `losses` the mean training losses between them. `run` is the run.json."""

    setting: str
    side: str
    seed: int
    batch: int
    steps: int
    seconds: float
    early: tuple[float, ...]
    losses: tuple[float, ...]
    judged: tuple[dict[str, float], ...]
    run: str

    @property
    def points(self) -> float:
        return 100 * self.judged[-1]["top1"]


class ResultStore:
    """Results on disk, so that an interrupted benchmark can continue."""

    def __init__(self, path: Path) -> None:
        self._path = path
        stored = json.loads(path.read_text())["results"] if path.exists() else []
        if any("setting" not in result for result in stored):
            sys.exit(f"{path} was written by an older version, without settings: choose another file with --out")
        self._results = [Result(**result) for result in stored]

    def find(self, training: Training, side: str, seed: int) -> Result | None:
        key = (training.setting, side, seed)
        return next((each for each in self._results if (each.setting, each.side, each.seed) == key), None)

    def all(self, training: Training, side: str, seeds: int) -> list[Result]:
        """Available results, by seed."""
        available = (self.find(training, side, seed) for seed in range(seeds))
        return [each for each in available if each is not None]

    def add(self, result: Result) -> None:
        self._results.append(result)
        self._path.write_text(json.dumps({"results": [asdict(each) for each in self._results]}, indent=1) + "\n")


def main() -> None:
    options = _options()
    store = ResultStore(options.out)
    trainings = [each for each in trainings_of(options) if each.variant.name in options.variants]
    # Before training, so that a missing PyTorch is reported at once and not after hours.
    python = torch_python(options.torch_python) if TORCH_SIDE in options.sides else ""
    if PHONES_SIDE in options.sides:
        on_phones(trainings, options.seeds, store)
    if python:
        by_torch(trainings, options, python, store)
    show(trainings, options.seeds, store)
    report_targets(targets(options, store))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="Python interpreter with PyTorch (default: this one)")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--epochs", type=int, help="override the epochs of every variant, for a quick test")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--variants", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES, help="which sides to train now")
    parser.add_argument("--torch-threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--out", type=Path, default=Path("accuracy.json"), help="results file; runs already in it are skipped"
    )
    return parser.parse_args()


def trainings_of(options: argparse.Namespace) -> list[Training]:
    return [Training(variant, options.model, options.epochs or variant.epochs) for variant in VARIANTS]


def on_phones(trainings: Sequence[Training], seeds: int, store: ResultStore) -> None:
    missing = _missing(trainings, PHONES_SIDE, seeds, store)
    if missing:
        with lab(PHONES):
            clusterctl("data", "add", "cifar10", str(cifar.ensure()))
            for training, seed in missing:
                _on_phones(training, seed, store)


def by_torch(trainings: Sequence[Training], options: argparse.Namespace, python: str, store: ResultStore) -> None:
    """Repeat the runs of the phones in PyTorch. Runs that the phones have not finished are skipped."""
    repeatable = [training for training in trainings if training.variant.by_torch]
    for training, seed in _missing(repeatable, TORCH_SIDE, options.seeds, store):
        if ours := store.find(training, PHONES_SIDE, seed):
            _by_torch(training, ours.run, python, options.torch_threads, store)


def _missing(trainings: Sequence[Training], side: str, seeds: int, store: ResultStore) -> list[tuple[Training, int]]:
    """Missing runs, ordered by seed, so that all variants finish one seed before the next."""
    requested = ((training, seed) for seed in range(seeds) for training in trainings)
    return [(training, seed) for training, seed in requested if store.find(training, side, seed) is None]


def _on_phones(training: Training, seed: int, store: ResultStore) -> None:
    started = time.monotonic()
    run = launch(*training.flags, "--seed", str(seed))
    losses = [step["loss"] for step in run.of("step")]
    seconds = time.monotonic() - started
    _store(training, PHONES_SIDE, run.spec, store, losses=losses, evaluations=run.of("evaluate"), seconds=seconds)


def _by_torch(training: Training, run: str, python: str, threads: int, store: ResultStore) -> None:
    started = time.monotonic()
    with Peer(TORCH_SIDE, "benchmarks.phones_in_torch", python) as torch:
        answer = torch.ask("train", run=run, model=training.model, data=str(cifar.ensure()), threads=threads)
    seconds = time.monotonic() - started
    _store(training, TORCH_SIDE, RunSpec.from_json(run), store, **answer, seconds=seconds)


def _store(
    training: Training,
    side: str,
    spec: RunSpec,
    store: ResultStore,
    *,
    losses: list[float],
    evaluations: list[dict[str, Any]],
    seconds: float,
) -> None:
    result = Result(
        setting=training.setting,
        side=side,
        seed=spec.seed,
        batch=spec.global_batch,
        steps=spec.steps,
        seconds=round(seconds, 1),
        early=tuple(losses[:EARLY]),
        losses=means_between(losses, evaluations),
        judged=tuple({key: each[key] for key in ("step", "top1", "loss")} for each in evaluations),
        run=spec.to_json(),
    )
    store.add(result)
    print(f"{training.variant.name}, seed {spec.seed}, {side}: {result.points:.2f}%", file=sys.stderr)


def means_between(losses: Sequence[float], evaluations: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    """The mean training loss of the steps before each evaluation."""
    ends = [int(each["step"]) for each in evaluations]
    return tuple(round(mean(losses[start:end]), 5) for start, end in zip([0, *ends], ends, strict=False))


def targets(options: argparse.Namespace, store: ResultStore) -> Iterator[Target]:
    """All targets; those of variants that were not requested are not checked."""
    by_name = {training.variant.name: training for training in trainings_of(options)}
    for name, training in by_name.items():
        requested, baseline = name in options.variants, by_name.get(training.variant.baseline)
        ours = store.all(training, PHONES_SIDE, options.seeds)
        if training.variant.by_torch:
            lead = _mean_lead(ours, store.all(training, TORCH_SIDE, options.seeds), options.seeds)
            skip_reason = "" if requested and TORCH_SIDE in options.sides else NOT_REQUESTED
            difference = None if lead is None else abs(lead)
            yield Target(
                f"{name}: percentage points between phones and {TORCH_SIDE}", difference, "<=", TOLERANCE, skip_reason
            )
        if baseline:
            lead = _mean_lead(ours, store.all(baseline, PHONES_SIDE, options.seeds), options.seeds)
            skip_reason = "" if requested else NOT_REQUESTED
            yield Target(
                f"{name}: percentage points above {training.variant.baseline}", lead, ">=", -TOLERANCE, skip_reason
            )


def _mean_lead(results: Sequence[Result], others: Sequence[Result], seeds: int) -> float | None:
    """Mean lead in percentage points over all seeds; None unless both sides have every seed."""
    if not len(results) == len(others) == seeds:
        return None
    return mean(one.points - other.points for one, other in zip(results, others, strict=True))


def show(trainings: Sequence[Training], seeds: int, store: ResultStore) -> None:
    table = Table(title=f"CIFAR-10 on {PHONES} phones: test accuracy, % (mean and standard deviation over seeds)")
    for column in ("", "", "epochs", "steps", "accuracy", "seeds", "first losses differ by"):
        table.add_column(column, justify="right" if column else "left")
    for training in trainings:
        for side in SIDES:
            if results := store.all(training, side, seeds):
                row = (str(training.epochs), str(results[0].steps), *_accuracy(results))
                difference = (
                    early_difference(store.all(training, PHONES_SIDE, seeds), results) if side == TORCH_SIDE else ""
                )
                table.add_row(training.variant.name, side, *row, difference)
    Console(width=110).print(table)


def _accuracy(results: Sequence[Result]) -> tuple[str, str]:
    points = [each.points for each in results]
    spread = f" ± {stdev(points):.2f}" if len(points) > 1 else ""
    return f"{mean(points):.2f}{spread}", str(len(points))


def early_difference(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """The largest difference between the first losses of both sides, seed by seed."""
    by_seed = {each.seed: each for each in theirs}
    pairs = [(each.early, by_seed[each.seed].early) for each in ours if each.seed in by_seed]
    differences = [abs(one - other) for pair in pairs for one, other in zip(*pair, strict=True)]
    return f"{max(differences):.1e}" if differences else ""


if __name__ == "__main__":
    main()
