"""Plot the results of `accuracy`: test accuracy by epoch, one line per variant, the range over the seeds shaded.

    python -m benchmarks.accuracy_plot docs/results/accuracy.json docs/results/accuracy.svg
    python -m benchmarks.accuracy_plot docs/results/accuracy.json docs/results/large-batch.svg --group large-batch

Only results with the default settings are plotted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.accuracy import GROUPS, MODEL, SAMPLES, SIDES, TORCH_SIDE, VARIANTS, Result, ResultStore, Training

MAX_SEEDS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--group", default=GROUPS[0], choices=GROUPS)
    options = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "accuracy"  # reproducible output
    draw(lines(ResultStore(options.results), options.group)).savefig(options.picture, metadata={"Date": None})


def lines(store: ResultStore, group: str) -> dict[str, list[Result]]:
    trainings = [Training(variant, MODEL, variant.epochs) for variant in VARIANTS if variant.group == group]
    by_line = {
        f"{side}, {training.variant.name}": store.all(training, side, MAX_SEEDS)
        for side in SIDES
        for training in trainings
    }
    return {name: results for name, results in by_line.items() if results}


def draw(by_line: dict[str, list[Result]]) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    curves, ends = figure.subplots(1, 2, width_ratios=(2, 1))
    for index, (name, results) in enumerate(by_line.items()):
        _curve(curves, name, results, f"C{index}")
        ends.plot([each.points for each in results], [index] * len(results), "o", color=f"C{index}")
    curves.set(xlabel="epoch", ylabel="test accuracy, %")
    curves.legend(frameon=False)
    ends.set(xlabel="final accuracy by seed, %", yticks=range(len(by_line)), yticklabels=list(by_line))
    ends.invert_yaxis()
    return figure


def _curve(axes: Any, name: str, results: Sequence[Result], color: str) -> None:
    epochs = [each["step"] * results[0].batch / SAMPLES for each in results[0].judged]
    by_epoch = list(zip(*([100 * each["top1"] for each in one.judged] for one in results), strict=True))
    middle = [sum(points) / len(points) for points in by_epoch]
    axes.plot(epochs, middle, "--" if TORCH_SIDE in name else "-", color=color, label=name)
    axes.fill_between(epochs, list(map(min, by_epoch)), list(map(max, by_epoch)), color=color, alpha=0.15, linewidth=0)


if __name__ == "__main__":
    main()
