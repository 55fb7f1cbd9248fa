"""`clusterctl build`: the agent bundle that provision installs on phones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.choices import BuildTarget
from orchestrator.cli.help import examples
from orchestrator.cli.options import JsonOption

if TYPE_CHECKING:
    from orchestrator.provision.bundle import Bundle

TargetOption = Annotated[
    BuildTarget,
    typer.Option("--target", help="Platform: host (this computer, for virtual phones) or aarch64-android (phones)."),
]
OutOption = Annotated[Path, typer.Option("--out", help="Output directory; an existing bundle there is replaced.")]


@examples("clusterctl build", "clusterctl build --target aarch64-android --out dist/phone")
def build(target: TargetOption = "host", out: OutOption = Path("dist/agent"), as_json: JsonOption = False) -> None:
    """Build the agent bundle that provision installs on phones.

    The bundle holds Python files, the compute core and a manifest. Builds are reproducible.
    """
    from orchestrator.provision.bundle import Target, build_bundle
    from orchestrator.view.progress import compiling

    with compiling("building the agent bundle"):
        bundle = build_bundle(Target(target), out)
    _show(bundle, target, as_json)


def _show(bundle: Bundle, target: str, as_json: bool) -> None:
    from orchestrator.view.console import out, print_json

    if as_json:
        print_json({"release": bundle.id, "target": target, "path": str(bundle.path), "files": bundle.files})
    else:
        out.print(f"{bundle.path}: agent {bundle.id} for {target}, {bundle.files} files", soft_wrap=True)
