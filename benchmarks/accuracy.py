"""CIFAR-10 on four phones and by PyTorch: the same first weights, order of samples and recipe; what do they learn?

    python -m benchmarks.accuracy --torch-python .venv/bin/python --out docs/results/accuracy.json
    python -m benchmarks.accuracy_plot docs/results/accuracy.json docs/results/accuracy.svg

Every run is a real `clusterctl launch` in a lab of its own. PyTorch repeats those in full precision from their
run.json (see phones_in_torch.py). The others change one thing each: what gradients travel as, or, over more epochs, the
batch. Two programs that round differently drift apart after some hundred steps, as two seeds do, so each is run with
several seeds, and means are judged. Ends with 1 where phones and PyTorch are more than half a point apart, where a
variant falls short of what it is compared with by more than that, and where something of it was not run.

What is done is written at once: started again with the same --out, it goes on with the rest. Results of other settings
(phones, network, flags, epochs) stay in the file and count for nothing.
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
from benchmarks.verdict import Promise, conclude
from phone_agent.contract.schema import RunSpec

PHONES, MODEL, SAMPLES = 4, "benchmarks/small_resnet.py:build", 50_000
PHONES_SIDE, TORCH_SIDE = SIDES = ("clusterctl", "PyTorch")
WIRES, LARGE_BATCH = GROUPS = ("wires", "large-batch")
EARLY = 5  # steps in which two programs have not drifted apart yet
WITHIN = 0.5  # points
NOT_ASKED = "not asked for"


@dataclass(frozen=True)
class Variant:
    """Groups have epochs of their own: a large batch has few steps an epoch. `baseline` names what a variant must not
    fall short of."""

    name: str
    group: str
    batch: int  # of all phones together
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
    """A variant, and what else decides what comes out."""

    variant: Variant
    model: str
    epochs: int

    @property
    def flags(self) -> tuple[str, ...]:
        """Of `clusterctl launch`, without the seed."""
        variant, an_epoch = self.variant, SAMPLES // self.variant.batch
        what = ("--model", self.model, "--data", "cifar10", "--global-batch", str(variant.batch))
        steps = ("--steps", str(self.epochs * an_epoch), "--eval-every", str(an_epoch))
        schedule = ("--schedule", "cosine", "--warmup-steps", str(int(variant.warmup * an_epoch)))
        return (*what, *steps, *schedule, *variant.flags)

    @cached_property
    def setting(self) -> str:
        """Results are of the same one or not compared. A network of a file is known by what is in it."""
        file, colon, _ = self.model.rpartition(":")
        digest = f", {hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]}" if colon else ""
        return f"{PHONES} phones{digest}, {' '.join(self.flags)}"


@dataclass(frozen=True)
class Result:
    """`judged` and `losses` (means since the last time) at the same steps. `run` is the phones' run.json."""

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


class Notebook:
    """Results on disk, so that minutes are not spent twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        kept = json.loads(path.read_text())["results"] if path.exists() else []
        if any("setting" not in result for result in kept):
            sys.exit(f"{path} does not say what its results are of: an older program's; give another --out")
        self._results = [Result(**result) for result in kept]

    def find(self, training: Training, side: str, seed: int) -> Result | None:
        wanted = (training.setting, side, seed)
        return next((each for each in self._results if (each.setting, each.side, each.seed) == wanted), None)

    def all(self, training: Training, side: str, seeds: int) -> list[Result]:
        """Those that are there, by seed."""
        found = (self.find(training, side, seed) for seed in range(seeds))
        return [each for each in found if each is not None]

    def add(self, result: Result) -> None:
        self._results.append(result)
        self._path.write_text(json.dumps({"results": [asdict(each) for each in self._results]}, indent=1) + "\n")


def main() -> None:
    options = _options()
    notebook = Notebook(options.out)
    trainings = [each for each in trainings_of(options) if each.variant.name in options.variants]
    python = torch_python(options.torch_python) if TORCH_SIDE in options.sides else ""  # told before hours are spent
    if PHONES_SIDE in options.sides:
        on_phones(trainings, options.seeds, notebook)
    if python:
        by_torch(trainings, options, python, notebook)
    show(trainings, options.seeds, notebook)
    conclude(promises(options, notebook))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="an interpreter with PyTorch, where this one has none")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--epochs", type=int, help="for a quick look: instead of each variant's own")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--variants", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES, help="who trains now")
    parser.add_argument("--torch-threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--out", type=Path, default=Path("accuracy.json"), help="file of results; those in it are not run again"
    )
    return parser.parse_args()


def trainings_of(options: argparse.Namespace) -> list[Training]:
    return [Training(variant, options.model, options.epochs or variant.epochs) for variant in VARIANTS]


def on_phones(trainings: Sequence[Training], seeds: int, notebook: Notebook) -> None:
    missing = _missing(trainings, PHONES_SIDE, seeds, notebook)
    if missing:
        with lab(PHONES):
            clusterctl("data", "add", "cifar10", str(cifar.ensure()))
            for training, seed in missing:
                _on_phones(training, seed, notebook)


def by_torch(trainings: Sequence[Training], options: argparse.Namespace, python: str, notebook: Notebook) -> None:
    """Repeats what phones did; what they did not do, it cannot."""
    repeatable = [training for training in trainings if training.variant.by_torch]
    for training, seed in _missing(repeatable, TORCH_SIDE, options.seeds, notebook):
        if ours := notebook.find(training, PHONES_SIDE, seed):
            _by_torch(training, ours.run, python, options.torch_threads, notebook)


def _missing(trainings: Sequence[Training], side: str, seeds: int, notebook: Notebook) -> list[tuple[Training, int]]:
    """All variants with one seed before the next one."""
    wanted = ((training, seed) for seed in range(seeds) for training in trainings)
    return [(training, seed) for training, seed in wanted if notebook.find(training, side, seed) is None]


def _on_phones(training: Training, seed: int, notebook: Notebook) -> None:
    started = time.monotonic()
    run = launch(*training.flags, "--seed", str(seed))
    losses = [step["loss"] for step in run.of("step")]
    seconds = time.monotonic() - started
    _note(training, PHONES_SIDE, run.spec, notebook, losses=losses, judged=run.of("evaluate"), seconds=seconds)


def _by_torch(training: Training, run: str, python: str, threads: int, notebook: Notebook) -> None:
    started = time.monotonic()
    with Peer(TORCH_SIDE, "benchmarks.phones_in_torch", python) as torch:
        found = torch.ask("train", run=run, model=training.model, data=str(cifar.ensure()), threads=threads)
    seconds = time.monotonic() - started
    _note(training, TORCH_SIDE, RunSpec.from_json(run), notebook, **found, seconds=seconds)


def _note(
    training: Training,
    side: str,
    spec: RunSpec,
    notebook: Notebook,
    *,
    losses: list[float],
    judged: list[dict[str, Any]],
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
        losses=means_between(losses, judged),
        judged=tuple({key: each[key] for key in ("step", "top1", "loss")} for each in judged),
        run=spec.to_json(),
    )
    notebook.add(result)
    print(f"{training.variant.name}, seed {spec.seed}, {side}: {result.points:.2f} %", file=sys.stderr)


def means_between(losses: Sequence[float], judged: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    ends = [int(each["step"]) for each in judged]
    return tuple(round(mean(losses[start:end]), 5) for start, end in zip([0, *ends], ends, strict=False))


def promises(options: argparse.Namespace, notebook: Notebook) -> Iterator[Promise]:
    """All there are, also those that nobody asked for."""
    by_name = {training.variant.name: training for training in trainings_of(options)}
    for name, training in by_name.items():
        asked, baseline = name in options.variants, by_name.get(training.variant.baseline)
        ours = notebook.all(training, PHONES_SIDE, options.seeds)
        if training.variant.by_torch:
            ahead = _ahead(ours, notebook.all(training, TORCH_SIDE, options.seeds), options.seeds)
            excuse = "" if asked and TORCH_SIDE in options.sides else NOT_ASKED
            apart = None if ahead is None else abs(ahead)
            yield Promise(f"{name}: points between phones and {TORCH_SIDE}", apart, "<=", WITHIN, excuse)
        if baseline:
            ahead = _ahead(ours, notebook.all(baseline, PHONES_SIDE, options.seeds), options.seeds)
            excuse = "" if asked else NOT_ASKED
            yield Promise(f"{name}: points more than {training.variant.baseline}", ahead, ">=", -WITHIN, excuse)


def _ahead(those: Sequence[Result], others: Sequence[Result], seeds: int) -> float | None:
    """Points, in the mean over all seeds; None unless both have them all."""
    if not len(those) == len(others) == seeds:
        return None
    return mean(one.points - other.points for one, other in zip(those, others, strict=True))


def show(trainings: Sequence[Training], seeds: int, notebook: Notebook) -> None:
    table = Table(title=f"CIFAR-10 on {PHONES} phones: test accuracy, % (mean and deviation over seeds)")
    for column in ("", "", "epochs", "steps", "accuracy", "seeds", "first losses differ by"):
        table.add_column(column, justify="right" if column else "left")
    for training in trainings:
        for side in SIDES:
            if those := notebook.all(training, side, seeds):
                row = (str(training.epochs), str(those[0].steps), *_accuracy(those))
                differ = early(notebook.all(training, PHONES_SIDE, seeds), those) if side == TORCH_SIDE else ""
                table.add_row(training.variant.name, side, *row, differ)
    Console(width=110).print(table)


def _accuracy(those: Sequence[Result]) -> tuple[str, str]:
    points = [each.points for each in those]
    spread = f" ± {stdev(points):.2f}" if len(points) > 1 else ""
    return f"{mean(points):.2f}{spread}", str(len(points))


def early(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """By the same seed, at the most."""
    by_seed = {each.seed: each for each in theirs}
    pairs = [(each.early, by_seed[each.seed].early) for each in ours if each.seed in by_seed]
    apart = [abs(one - other) for pair in pairs for one, other in zip(*pair, strict=True)]
    return f"{max(apart):.1e}" if apart else ""


if __name__ == "__main__":
    main()
