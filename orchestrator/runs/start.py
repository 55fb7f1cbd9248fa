"""What a run starts from besides its seed: one's own network, given weights. Checked before a phone is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.trained import read_weights
from phone_agent import layout, safetensors
from phone_agent.errors import AgentError
from phone_agent.models import own
from phone_agent.nn.packing import State
from phone_agent.nn.weights import start_from, to_state_dict

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection
    from phone_agent.nn.graph import Graph
    from phone_agent.schema import RunSpec


@dataclass(frozen=True)
class Start:
    model_source: bytes | None = None
    weights: dict[str, Any] | None = None  # all the network has
    replaced: tuple[str, ...] = ()  # tensors of the last layer that the given weights have not, or for other classes
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


def starting_point(model: str, graph: Graph, weights: Path | None, seed: int) -> Start:
    source = own.split(model)[0].read_bytes() if own.is_own(model) else None
    if weights is None:
        return Start(source)
    state = State(graph, seed)
    try:
        replaced = start_from(graph, state, read_weights(weights).weights)
    except AgentError as error:
        raise UsageError(f"--weights {weights}: {error}") from None
    return Start(source, to_state_dict(graph, state), replaced)
