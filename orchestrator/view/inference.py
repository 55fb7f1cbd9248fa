"""What a trained network was found to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from orchestrator.text import count_of, one_line
from orchestrator.view.console import out, print_json

if TYPE_CHECKING:
    from orchestrator.inference.evaluate import Guess, Judged
    from orchestrator.inference.model import Trained


def print_exported(trained: Trained, path: Path, format_name: str, *, as_json: bool) -> None:
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
        shape = "x".join(map(str, trained.graph.shape))
        what = f"{trained.about.model}, {shape} images, {trained.graph.classes} classes, {size / 1e6:,.1f} MB"
        out.print(f"{path}: {what}", markup=False, soft_wrap=True)


def print_judged(trained: Trained, judged: Judged, *, as_json: bool) -> None:
    if as_json:
        whose = trained.about.run.run_id if trained.about.run else None
        print_json({"model": trained.about.model, "from": trained.source, "run_id": whose, **asdict(judged)})
    else:
        figures = f"top 1: {judged.top1:.2%}   top 5: {judged.top5:.2%}   loss {judged.loss:.4f}"
        out.print(f"{figures}   {count_of(judged.samples, 'sample')} of {judged.data}", markup=False, soft_wrap=True)


def print_guesses(pictures: Sequence[Path], guesses: Sequence[Sequence[Guess]], *, as_json: bool) -> None:
    if as_json:
        pairs = zip(pictures, guesses, strict=True)
        print_json([{"image": path, "classes": [asdict(guess) for guess in found]} for path, found in pairs])
        return
    table = Table(box=None, padding=(0, 2))
    for column in ("image", "class", "probability"):
        table.add_column(column)
    for path, found in zip(pictures, guesses, strict=True):
        for place, guess in enumerate(found):
            whose = "" if place else one_line(str(path))
            table.add_row(Text(whose), Text(one_line(guess.name)), f"{guess.probability:.1%}")
    out.print(table)
