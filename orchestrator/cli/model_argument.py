"""The RUN or FILE argument of `eval`, `export` and `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import complete_model

if TYPE_CHECKING:
    from orchestrator.inference.model import TrainedModel

WEIGHTS = (".safetensors", ".npz", ".pth", ".pt")

TrainedArgument = Annotated[
    str | None,
    typer.Argument(metavar="[RUN|FILE]", help="Run id or unique prefix, or a weights file. Default: the newest run."),
]
ModelOption = Annotated[
    str | None,
    typer.Option(help="Model the weights belong to, if the file does not record it.", autocompletion=complete_model),
]
ThreadsOption = Annotated[int | None, typer.Option(help="Number of threads. Default: one per core.", min=1, max=64)]


def find_trained(which: str | None, model: str | None, inventory: Path | None) -> TrainedModel:
    from orchestrator.errors import agent_errors
    from orchestrator.inference.model import open_trained

    with agent_errors():
        if which is not None and (Path(which).suffix in WEIGHTS or Path(which).is_file()):
            return open_trained(Path(which), model)
        path, own = _of_run(which, inventory)
        return open_trained(path, model or own)


def cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def _of_run(which: str | None, inventory: Path | None) -> tuple[Path, str | None]:
    """The checkpoint of the run on this computer, and its model if that is the user's own file."""
    from orchestrator.cli.session import selected_clusters
    from orchestrator.errors import UsageError
    from orchestrator.records.checkpoints import newest_local
    from orchestrator.records.record import find_run

    found = find_run(selected_clusters(inventory), which)
    store, record = found.store, found.record
    directory, spec = store.directory(record.run_id), store.spec(record.run_id)
    path = newest_local(directory)
    if path is None:
        raise UsageError(
            f"this computer has no checkpoint of {record.run_id}", remedy=f"clusterctl attach {record.run_id}"
        )
    return path, f"{directory / spec.model_file}:{spec.model}" if spec.model_file else None
