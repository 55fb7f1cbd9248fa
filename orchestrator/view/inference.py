"""Results of `eval`, `predict` and `export`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.format import format_shape
from orchestrator.text import count_of, one_line
from orchestrator.view.console import out, print_json
from orchestrator.view.table import Column, FitTable, print_table

if TYPE_CHECKING:
    from orchestrator.inference.evaluate import Evaluation, Prediction
    from orchestrator.inference.model import TrainedModel


def print_exported(trained: TrainedModel, path: Path, format_name: str, *, as_json: bool) -> None:
    size = path.stat().st_size
    if as_json:
        document = {
            "file": path,
            "format": format_name,
            "bytes": size,
            "model": trained.about.model,
            "from": trained.source,
        }
        print_json({**document, "shape": trained.graph.shape, "classes": trained.graph.classes})
    else:
        shape = format_shape(trained.graph.shape)
        what = f"{trained.about.model}, input {shape}, {trained.graph.classes} classes, {size / 1e6:,.1f} MB"
        out.print(f"{path}: {what}", markup=False, soft_wrap=True)


def print_evaluation(trained: TrainedModel, evaluation: Evaluation, *, as_json: bool) -> None:
    if as_json:
        whose = trained.about.run.run_id if trained.about.run else None
        print_json({"model": trained.about.model, "from": trained.source, "run_id": whose, **asdict(evaluation)})
    else:
        figures = f"top-1 {evaluation.top1:.2%}   top-5 {evaluation.top5:.2%}   loss {evaluation.loss:.4f}"
        out.print(
            f"{figures}   ({count_of(evaluation.samples, 'image')} of {evaluation.data})", markup=False, soft_wrap=True
        )


def print_predictions(images: Sequence[Path], predictions: Sequence[Sequence[Prediction]], *, as_json: bool) -> None:
    if as_json:
        pairs = zip(images, predictions, strict=True)
        print_json([{"image": path, "classes": [asdict(each) for each in found]} for path, found in pairs])
        return
    print_table(out, render_predictions(images, predictions))


def render_predictions(images: Sequence[Path], predictions: Sequence[Sequence[Prediction]]) -> FitTable:
    table = FitTable(Column("image", wrap=True), Column("class", wrap=True), Column("probability", right=True))
    for path, found in zip(images, predictions, strict=True):
        for place, each in enumerate(found):
            image = "" if place else one_line(str(path))
            table.add_row(image, one_line(each.name), f"{each.probability:.1%}")
    return table
