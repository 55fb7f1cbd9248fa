"""CIFAR-10 on four phones and by PyTorch: the same first weights, order of samples and recipe; what do they learn?

    python -m benchmarks.accuracy --torch-python .venv/bin/python --out docs/accuracy.json
    python -m benchmarks.accuracy_plot docs/accuracy.json docs/accuracy.svg

Every run is a real `clusterctl launch` in a lab of its own. PyTorch repeats those in full precision from their
run.json (see phones_in_torch.py). The others change one thing each: what gradients travel as, or the batch. Two
programs that round differently drift apart after some hundred steps, as two seeds do, so each is run with several
seeds. What is done is written at once: started again with the same --out, it goes on with the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import cifar
from benchmarks.labs import clusterctl, lab, launch
from benchmarks.peers import Peer, torch_python
from phone_agent.schema import RunSpec

PHONES, MODEL, SAMPLES = 4, "benchmarks/small_resnet.py:build", 50_000
PHONES_SIDE, TORCH_SIDE = "clusterctl", "PyTorch"
EARLY = 5  # steps in which two programs have not drifted apart yet
WITHIN = 0.5  # points


@dataclass(frozen=True)
class Variant:
    name: str
    batch: int  # of all phones together
    flags: tuple[str, ...]
    warmup: float = 0.5  # epochs
    by_torch: bool = False


SGD = ("--optimizer", "nesterov", "--lr", "0.2", "--weight-decay", "0.0005")
LARS = ("--optimizer", "lars", "--lr", "0.8", "--trust", "0.02", "--weight-decay", "0.0005")
VARIANTS = (
    Variant("fp32", 128, (*SGD, "--wire", "fp32"), by_torch=True),
    Variant("fp16", 128, (*SGD, "--wire", "fp16")),
    Variant("int8", 128, (*SGD, "--wire", "int8")),
    Variant("powersgd", 128, (*SGD, "--wire", "powersgd")),
    Variant("batch 512, LARS", 512, (*LARS, "--wire", "fp32"), warmup=1),
)
NAMES = tuple(variant.name for variant in VARIANTS)


@dataclass(frozen=True)
class Result:
    """`judged` and `losses` (means since the last time) at the same steps."""

    variant: str
    side: str
    seed: int
    batch: int
    steps: int
    seconds: float
    early: tuple[float, ...]
    losses: tuple[float, ...]
    judged: tuple[dict[str, float], ...]

    @property
    def points(self) -> float:
        return 100 * self.judged[-1]["top1"]


class Notebook:
    """Results on disk, so that minutes are not spent twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        kept = json.loads(path.read_text()) if path.exists() else {"results": [], "runs": {}}
        self.results = [Result(**result) for result in kept["results"]]
        self._runs: dict[str, str] = kept["runs"]  # run.json, for PyTorch to repeat

    def has(self, variant: str, side: str, seed: int) -> bool:
        return any((each.variant, each.side, each.seed) == (variant, side, seed) for each in self.results)

    def add(self, result: Result, run: str | None = None) -> None:
        self.results.append(result)
        if run is not None:
            self._runs[f"{result.variant} {result.seed}"] = run
        kept = {"results": [asdict(each) for each in self.results], "runs": self._runs}
        self._path.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{result.variant}, seed {result.seed}, {result.side}: {result.points:.2f} %", file=sys.stderr)

    def run_of(self, variant: str, seed: int) -> str:
        return self._runs[f"{variant} {seed}"]


def main() -> None:
    options = _options()
    notebook = Notebook(options.out)
    variants = [variant for variant in VARIANTS if variant.name in options.variants]
    ours = [each for each in _wanted(variants, options.seeds) if not notebook.has(each[0].name, PHONES_SIDE, each[1])]
    if ours:
        with lab(PHONES):
            clusterctl("data", "add", "cifar10", str(cifar.ensure()))
            for variant, seed in ours:
                _on_phones(variant, seed, options, notebook)
    for variant, seed in _wanted(variants, options.seeds):
        if variant.by_torch and not notebook.has(variant.name, TORCH_SIDE, seed):
            _by_torch(variant, seed, options, notebook)
    show(notebook.results)
    apart = to_torch([each for each in notebook.results if each.variant == VARIANTS[0].name], notebook.results)
    if apart and abs(mean(apart)) > WITHIN:
        sys.exit(f"more than {WITHIN} points apart")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="an interpreter with PyTorch, where this one has none")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--variants", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--torch-threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, required=True, help="file of results; those in it are not run again")
    return parser.parse_args()


def _wanted(variants: Sequence[Variant], seeds: int) -> Iterator[tuple[Variant, int]]:
    """All variants with one seed before the next one."""
    return ((variant, seed) for seed in range(seeds) for variant in variants)


def _on_phones(variant: Variant, seed: int, options: argparse.Namespace, notebook: Notebook) -> None:
    started = time.monotonic()
    an_epoch = SAMPLES // variant.batch
    steps = ("--steps", str(options.epochs * an_epoch), "--evaluate-every", str(an_epoch))
    schedule = ("--schedule", "cosine", "--warmup", str(int(variant.warmup * an_epoch)))
    what = ("--model", options.model, "--data", "cifar10", "--global-batch", str(variant.batch), "--seed", str(seed))
    run = launch(*what, *steps, *schedule, *variant.flags)
    losses = [step["loss"] for step in run.of("step")]
    judged, seconds = run.of("evaluate"), time.monotonic() - started
    result = _result(variant, PHONES_SIDE, run.spec, losses=losses, judged=judged, seconds=seconds)
    notebook.add(result, run.spec.to_json())


def _by_torch(variant: Variant, seed: int, options: argparse.Namespace, notebook: Notebook) -> None:
    started = time.monotonic()
    run = notebook.run_of(variant.name, seed)
    with Peer(TORCH_SIDE, "benchmarks.phones_in_torch", torch_python(options.torch_python)) as torch:
        threads = options.torch_threads
        found = torch.ask("train", run=run, model=options.model, data=str(cifar.ensure()), threads=threads)
    notebook.add(_result(variant, TORCH_SIDE, RunSpec.from_json(run), **found, seconds=time.monotonic() - started))


def _result(
    variant: Variant, side: str, spec: RunSpec, *, losses: list[float], judged: list[dict[str, Any]], seconds: float
) -> Result:
    return Result(
        variant=variant.name,
        side=side,
        seed=spec.seed,
        batch=spec.global_batch,
        steps=spec.steps,
        seconds=round(seconds, 1),
        early=tuple(losses[:EARLY]),
        losses=means_between(losses, judged),
        judged=tuple({key: each[key] for key in ("step", "top1", "loss")} for each in judged),
    )


def means_between(losses: Sequence[float], judged: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    ends = [int(each["step"]) for each in judged]
    return tuple(round(mean(losses[start:end]), 5) for start, end in zip([0, *ends], ends, strict=False))


def show(results: Sequence[Result]) -> None:
    table = Table(title=f"CIFAR-10 on {PHONES} phones: test accuracy, % (mean and deviation over seeds)")
    for column in ("", "", "accuracy", "seeds", "to PyTorch's", "first losses differ by"):
        table.add_column(column, justify="right" if column else "left")
    for name in NAMES:
        for side in (PHONES_SIDE, TORCH_SIDE):
            those = [each for each in results if (each.variant, each.side) == (name, side)]
            if those:
                table.add_row(name, side, *_cells(those, results))
    Console().print(table)


def _cells(those: Sequence[Result], results: Sequence[Result]) -> tuple[str, str, str, str]:
    points = [each.points for each in those]
    spread = f" ± {stdev(points):.2f}" if len(points) > 1 else ""
    apart = to_torch(those, results)
    told = f"{mean(apart):+.2f}" if apart else ""
    return f"{mean(points):.2f}{spread}", str(len(points)), told, _early(_pairs(those, results))


def to_torch(those: Sequence[Result], results: Sequence[Result]) -> list[float]:
    """How much more is right than by PyTorch with the same seed; points."""
    return [ours.points - theirs.points for ours, theirs in _pairs(those, results)]


def _pairs(those: Sequence[Result], results: Sequence[Result]) -> list[tuple[Result, Result]]:
    by_torch = {each.seed: each for each in results if each.side == TORCH_SIDE}
    return [(each, by_torch[each.seed]) for each in those if each.side == PHONES_SIDE and each.seed in by_torch]


def _early(pairs: Sequence[tuple[Result, Result]]) -> str:
    """Of the same batch only: of another one the first losses are others."""
    apart = [
        abs(one - other)
        for ours, theirs in pairs
        if ours.batch == theirs.batch
        for one, other in zip(ours.early, theirs.early, strict=True)
    ]
    return f"{max(apart):.1e}" if apart else ""


if __name__ == "__main__":
    main()
