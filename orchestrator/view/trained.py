"""What a trained network was found to be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.view.console import out, print_json

if TYPE_CHECKING:
    from orchestrator.trained import Trained


def print_exported(trained: Trained, path: Path, format_name: str, *, as_json: bool) -> None:
    size = path.stat().st_size
    if as_json:
        document = {"file": path, "format": format_name, "bytes": size, "model": trained.model, "from": trained.source}
        print_json({**document, "shape": trained.graph.shape, "classes": trained.graph.classes})
    else:
        shape = "x".join(map(str, trained.graph.shape))
        what = f"{trained.model}, {shape} images, {trained.graph.classes} classes, {size / 1e6:,.1f} MB"
        out.print(f"{path}: {what}", markup=False, soft_wrap=True)
