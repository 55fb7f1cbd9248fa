"""`clusterctl export`: a trained network as a file for other programs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.model_argument import ModelOption, TrainedArgument
from orchestrator.cli.options import InventoryOption, JsonOption

if TYPE_CHECKING:
    from orchestrator.inference.model import Trained


class Format(Enum):
    ONNX = "onnx"
    SAFETENSORS = "safetensors"


def export(
    trained: TrainedArgument = None,
    format: Annotated[Format, typer.Option(help="What to write.")] = Format.ONNX,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write. Default: MODEL.onnx, MODEL.safetensors.")
    ] = None,
    model: ModelOption = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a trained network as ONNX (NCHW images in, class scores out), or its weights under torchvision's names."""
    from orchestrator.cli.agent_errors import engine_errors
    from orchestrator.cli.model_argument import find_trained
    from orchestrator.errors import UsageError
    from orchestrator.view.inference import print_exported

    found = find_trained(trained, model, inventory)
    usual = Path(f"{Path(found.about.model.partition(':')[0]).stem}.{format.value}")
    path = out or usual
    if path.is_dir():
        raise UsageError(f"{path} is a directory, not a file to write", remedy=f"-o {path / usual}")
    with engine_errors():
        _write(found, format, path)
    path.chmod(0o666 & ~_umask())  # it is for others; written whole, it was for nobody else
    print_exported(found, path, format.value, as_json=as_json)


def _write(found: Trained, format: Format, path: Path) -> None:
    from orchestrator.export import onnx
    from phone_agent.api.weights import to_state_dict
    from phone_agent.contract import safetensors
    from phone_agent.contract.files import write_bytes

    weights = to_state_dict(found.graph, found.state)
    if format is Format.ONNX:
        write_bytes(path, onnx.model(found.graph, weights, found.about.metadata()))
    else:
        safetensors.write(path, weights, {"format": "pt", **found.about.metadata()})


def _umask() -> int:
    import os

    mask = os.umask(0o077)
    os.umask(mask)
    return mask
