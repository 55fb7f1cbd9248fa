"""`clusterctl export`: a trained model as a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.choices import ExportFormat
from orchestrator.cli.help import examples
from orchestrator.cli.model_argument import ModelOption, TrainedArgument
from orchestrator.cli.options import ClusterOption, JsonOption

if TYPE_CHECKING:
    from orchestrator.inference.model import TrainedModel


@examples(
    "clusterctl export", "clusterctl export 20260131-1200 -o flowers.onnx", "clusterctl export --format safetensors"
)
def export(
    trained: TrainedArgument = None,
    format: Annotated[ExportFormat, typer.Option(help="File format.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Output file. Default: MODEL.onnx or MODEL.safetensors.")
    ] = None,
    model: ModelOption = None,
    inventory: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a trained model as ONNX or safetensors.

    ONNX: NCHW images in, class scores out. Safetensors: weights with torchvision's parameter names.
    """
    from orchestrator.cli.model_argument import find_trained
    from orchestrator.errors import UsageError, agent_errors
    from orchestrator.view.inference import print_exported
    from orchestrator.view.progress import working

    found = find_trained(trained, model, inventory)
    default = Path(f"{Path(found.about.model.partition(':')[0]).stem}.{format}")
    path = out or default
    if path.is_dir():
        raise UsageError(f"{path} is a directory, not a file to write", remedy=f"-o {path / default}")
    with agent_errors(), working(f"writing {path}"):
        _write(found, format, path)
    path.chmod(0o666 & ~_umask())  # it was written with access for the owner only
    print_exported(found, path, format, as_json=as_json)


def _write(found: TrainedModel, format: ExportFormat, path: Path) -> None:
    from orchestrator.export import onnx
    from phone_agent.api.training import to_state_dict
    from phone_agent.contract import safetensors
    from phone_agent.contract.files import write_bytes

    weights = to_state_dict(found.graph, found.state)
    if format == "onnx":
        write_bytes(path, onnx.model(found.graph, weights, found.about.metadata()))
    else:
        safetensors.write(path, weights, {"format": "pt", **found.about.metadata()})


def _umask() -> int:
    import os

    mask = os.umask(0o077)
    os.umask(mask)
    return mask
