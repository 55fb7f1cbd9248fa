"""What a run starts from besides its seed: a custom network, initial weights, a checkpoint to resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.inference.model import read_weights
from orchestrator.records import checkpoints
from phone_agent.api import models
from phone_agent.api.training import State, load_pretrained, to_state_dict
from phone_agent.contract import layout, safetensors
from phone_agent.contract.errors import AgentError
from phone_agent.contract.files import write_bytes

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection
    from phone_agent.api.models import Graph
    from phone_agent.api.training import Checkpoint
    from phone_agent.contract.schema import RunSpec

_REMEDY = "use a checkpoint, safetensors or .npz file for this model"


@dataclass(frozen=True)
class InitialState:
    model_source: bytes | None = None  # the Python file of a custom network
    weights: dict[str, Any] | None = None  # all tensors of the network
    reinitialized: tuple[str, ...] = ()  # tensors of the last layer that do not come from the weights file
    resume: Path | None = None  # the checkpoint to resume from

    def save(self, spec: RunSpec, directory: Path) -> None:
        """Writes all of it beside the run's record: restarts and later uses of its checkpoints need it."""
        if self.model_source is not None:
            write_bytes(directory / spec.model_file, self.model_source)
        if self.weights is not None:
            safetensors.write(directory / spec.weights, self.weights)
        if self.resume is not None:
            checkpoints.keep_copy(self.resume, directory)

    @classmethod
    def load(cls, spec: RunSpec, directory: Path, resume: Path | None = None) -> InitialState:
        """Reads what `save` wrote."""
        source = (directory / spec.model_file).read_bytes() if spec.model_file else None
        weights = safetensors.read(directory / spec.weights).tensors if spec.weights else None
        return cls(source, weights, resume=resume)

    def stage(self, connection: PhoneConnection, spec: RunSpec, scratch: Path) -> None:
        """Every phone gets the network. Only the head phone gets weights and checkpoint: it broadcasts them."""
        directory = layout.run_dir(spec.run_id)
        is_head = connection.phone.name == spec.ranks[0].phone
        if self.model_source is not None:
            connection.put(self.model_source, directory / spec.model_file)
        if self.resume is not None and is_head:
            connection.put_file(self.resume, directory / spec.resume.file)
        if self.weights is not None and is_head:
            file = scratch / spec.weights
            safetensors.write(file, self.weights)
            connection.put_file(file, directory / spec.weights)


@dataclass(frozen=True)
class WeightsFile:
    """The file named by --weights."""

    path: Path
    content: Checkpoint

    def has_other_classes(self, class_names: Sequence[str]) -> bool:
        """Whether the file was trained on other classes. Unknown class names count as the same."""
        known = self.content.info.class_names
        return bool(known and class_names) and known != tuple(class_names)


def read_weights_file(path: Path) -> WeightsFile:
    try:
        return WeightsFile(path, read_weights(path))
    except AgentError as error:
        raise UsageError(f"--weights {path}: {error}", remedy=_REMEDY) from None


def make_initial_state(
    model: str,
    graph: Graph,
    file: WeightsFile | None,
    seed: int,
    *,
    class_names: Sequence[str] = (),
    new_head: bool | None = None,
) -> InitialState:
    """All weights are made on this computer, those of a new last layer too. `new_head` None: if the classes differ."""
    source = models.split_name(model)[0].read_bytes() if models.is_custom(model) else None
    if file is None:
        return InitialState(source)
    state = State(graph, seed)
    try:
        replace_head = file.has_other_classes(class_names) if new_head is None else new_head
        reinitialized = load_pretrained(graph, state, file.content.weights, new_head=replace_head)
    except AgentError as error:
        raise UsageError(f"--weights {file.path}: {error}", remedy=_REMEDY) from None
    if reinitialized and new_head is False:
        names = ", ".join(reinitialized)
        raise UsageError(
            f"--keep-head: {names} of {file.path} do not fit {graph.classes} classes", remedy="leave out --keep-head"
        )
    trainable = [name for name in reinitialized if name in state.packing.slots]
    if reinitialized and graph.frozen.issuperset(trainable):
        raise UsageError(
            f"--freeze: {', '.join(trainable)} are initialized at random and would never be trained",
            remedy="freeze only layers before these",
        )
    return InitialState(source, to_state_dict(graph, state), reinitialized)
