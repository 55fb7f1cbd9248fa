"""Draws what `accuracy` found: test accuracy by epoch, a line a variant, the seeds' range shaded.

python -m benchmarks.accuracy_plot docs/accuracy.json docs/accuracy.svg
"""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.accuracy import SAMPLES, TORCH_SIDE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "accuracy"  # the same results, the same bytes
    draw(json.loads(options.results.read_text())["results"]).savefig(options.picture, metadata={"Date": None})


def draw(results: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    curves, ends = figure.subplots(1, 2, width_ratios=(2, 1))
    names = []
    for place, (name, group) in enumerate(groupby(sorted(results, key=_name), _name)):
        names.append(name)
        those = list(group)
        _curve(curves, name, those, f"C{place}")
        ends.plot([100 * each["judged"][-1]["top1"] for each in those], [place] * len(those), "o", color=f"C{place}")
    curves.set(xlabel="epoch", ylabel="test accuracy, %")
    curves.legend(frameon=False)
    ends.set(xlabel="at the end, by seed, %", yticks=range(len(names)), yticklabels=names)
    ends.invert_yaxis()
    return figure


def _curve(axes: Any, name: str, those: list[dict[str, Any]], colour: str) -> None:
    epochs = [each["step"] * those[0]["batch"] / SAMPLES for each in those[0]["judged"]]
    by_epoch = list(zip(*([100 * each["top1"] for each in one["judged"]] for one in those), strict=True))
    middle = [sum(points) / len(points) for points in by_epoch]
    axes.plot(epochs, middle, "--" if TORCH_SIDE in name else "-", color=colour, label=name)
    axes.fill_between(epochs, list(map(min, by_epoch)), list(map(max, by_epoch)), color=colour, alpha=0.15, linewidth=0)


def _name(result: dict[str, Any]) -> str:
    return f"{result['side']}, {result['variant']}"


if __name__ == "__main__":
    main()
