"""What a run starts from besides its seed: one's own network, given weights. Checked before a phone is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.inference.model import read_weights
from phone_agent.api import models
from phone_agent.api.weights import State, load_pretrained, to_state_dict
from phone_agent.contract import layout, safetensors
from phone_agent.contract.errors import AgentError

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection
    from phone_agent.api.models import Graph
    from phone_agent.api.weights import Checkpoint
    from phone_agent.contract.schema import RunSpec

FITTING = "name a checkpoint, or a safetensors or .npz file, of this very network"


@dataclass(frozen=True)
class Start:
    model_source: bytes | None = None
    weights: dict[str, Any] | None = None  # all the network has
    replaced: tuple[str, ...] = ()  # tensors of the head that the given weights have not, or for other classes
    resume: Path | None = None  # a checkpoint to go on from

    def keep(self, spec: RunSpec, directory: Path) -> None:
        """The network's file beside the run's record: without it, no checkpoint of the run can be used. And what it
        starts from, should it have to start again."""
        if self.model_source is not None:
            (directory / spec.model_file).write_bytes(self.model_source)
        if self.weights is not None:
            safetensors.write(directory / spec.weights, self.weights)

    @classmethod
    def kept(cls, spec: RunSpec, directory: Path, resume: Path | None = None) -> Start:
        """What `keep` left there."""
        source = (directory / spec.model_file).read_bytes() if spec.model_file else None
        weights = safetensors.read(directory / spec.weights).tensors if spec.weights else None
        return cls(source, weights, resume=resume)

    def stage(self, connection: PhoneConnection, spec: RunSpec, scratch: Path) -> None:
        """Every phone gets the network; only the head gets the weights, and shares them with the others."""
        directory = layout.run_dir(spec.run_id)
        if self.model_source is not None:
            connection.put(self.model_source, directory / spec.model_file)
        if self.resume is not None and connection.phone.name == spec.ranks[0].phone:
            connection.put_file(self.resume, directory / spec.resume)
        if self.weights is not None and connection.phone.name == spec.ranks[0].phone:
            file = scratch / spec.weights
            safetensors.write(file, self.weights)
            connection.put_file(file, directory / spec.weights)


@dataclass(frozen=True)
class Given:
    """A file of weights that somebody named."""

    path: Path
    content: Checkpoint

    def is_of_other_classes(self, class_names: Sequence[str]) -> bool:
        """As far as both sides say: as many classes that are called otherwise are not those it knows."""
        known = self.content.about.class_names
        return bool(known and class_names) and known != tuple(class_names)


def read_given(path: Path) -> Given:
    try:
        return Given(path, read_weights(path))
    except AgentError as error:
        raise UsageError(f"--weights {path}: {error}", remedy=FITTING) from None


def starting_point(
    model: str,
    graph: Graph,
    given: Given | None,
    seed: int,
    *,
    class_names: Sequence[str] = (),
    new_head: bool | None = None,
) -> Start:
    """All weights are made here, those of a new head too: phones take them as they come."""
    source = models.split_name(model)[0].read_bytes() if models.is_custom(model) else None
    if given is None:
        return Start(source)
    state = State(graph, seed)
    try:
        anew = given.is_of_other_classes(class_names) if new_head is None else new_head
        replaced = load_pretrained(graph, state, given.content.weights, new_head=anew)
    except AgentError as error:
        raise UsageError(f"--weights {given.path}: {error}", remedy=FITTING) from None
    if replaced and new_head is False:
        told = f"--keep-head: {', '.join(replaced)} of {given.path} are not for {graph.classes} classes"
        raise UsageError(told, remedy="leave out --keep-head")
    learned = [name for name in replaced if name in state.packing.slots]
    if replaced and graph.frozen.issuperset(learned):
        told = f"--freeze: {', '.join(learned)} start anew, and would never learn"
        raise UsageError(told, remedy="freeze only layers before these")
    return Start(source, to_state_dict(graph, state), replaced)
