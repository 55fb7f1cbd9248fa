"""`clusterctl build`: the agent bundle, as phones get it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import JsonOption

if TYPE_CHECKING:
    from orchestrator.provision.bundle import Bundle

TargetOption = Annotated[str, typer.Option("--target", help="host or aarch64-android.")]
OutOption = Annotated[Path, typer.Option("--out", help="Directory to write; an earlier bundle there is replaced.")]


def build(target: TargetOption = "host", out: OutOption = Path("dist/agent"), as_json: JsonOption = False) -> None:
    """Write the agent bundle: Python files, the compute core and a manifest. The same sources give the same bytes."""
    from orchestrator.errors import UsageError
    from orchestrator.provision.bundle import Target, build_bundle

    if target not in set(Target):
        raise UsageError(f"no such target: {target}", remedy=f"one of {', '.join(Target)}")
    _show(build_bundle(Target(target), out), target, as_json)


def _show(bundle: Bundle, target: str, as_json: bool) -> None:
    from orchestrator.view.console import out, print_json

    if as_json:
        print_json({"release": bundle.id, "target": target, "path": str(bundle.path), "files": bundle.files})
    else:
        out.print(f"{bundle.path}: agent {bundle.id} for {target}, {bundle.files} files", soft_wrap=True)
