"""Draws what `accuracy` found: test accuracy by epoch, a line a variant, the seeds' range shaded.

    python -m benchmarks.accuracy_plot docs/results/accuracy.json docs/results/accuracy.svg
    python -m benchmarks.accuracy_plot docs/results/accuracy.json docs/results/large-batch.svg --group large-batch

Results of other settings than a plain run's are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.accuracy import GROUPS, MODEL, SAMPLES, SIDES, TORCH_SIDE, VARIANTS, Notebook, Result, Training

MOST_SEEDS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--group", default=GROUPS[0], choices=GROUPS)
    options = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "accuracy"  # the same results, the same bytes
    draw(lines(Notebook(options.results), options.group)).savefig(options.picture, metadata={"Date": None})


def lines(notebook: Notebook, group: str) -> dict[str, list[Result]]:
    trainings = [Training(variant, MODEL, variant.epochs) for variant in VARIANTS if variant.group == group]
    found = {
        f"{side}, {training.variant.name}": notebook.all(training, side, MOST_SEEDS)
        for side in SIDES
        for training in trainings
    }
    return {name: those for name, those in found.items() if those}


def draw(found: dict[str, list[Result]]) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    curves, ends = figure.subplots(1, 2, width_ratios=(2, 1))
    for place, (name, those) in enumerate(found.items()):
        _curve(curves, name, those, f"C{place}")
        ends.plot([each.points for each in those], [place] * len(those), "o", color=f"C{place}")
    curves.set(xlabel="epoch", ylabel="test accuracy, %")
    curves.legend(frameon=False)
    ends.set(xlabel="at the end, by seed, %", yticks=range(len(found)), yticklabels=list(found))
    ends.invert_yaxis()
    return figure


def _curve(axes: Any, name: str, those: Sequence[Result], colour: str) -> None:
    epochs = [each["step"] * those[0].batch / SAMPLES for each in those[0].judged]
    by_epoch = list(zip(*([100 * each["top1"] for each in one.judged] for one in those), strict=True))
    middle = [sum(points) / len(points) for points in by_epoch]
    axes.plot(epochs, middle, "--" if TORCH_SIDE in name else "-", color=colour, label=name)
    axes.fill_between(epochs, list(map(min, by_epoch)), list(map(max, by_epoch)), color=colour, alpha=0.15, linewidth=0)


if __name__ == "__main__":
    main()
