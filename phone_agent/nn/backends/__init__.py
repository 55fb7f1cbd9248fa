"""Who computes. A backend compiles a graph once for a batch size; training then only calls the result."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from phone_agent.errors import AgentError
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State


class Executable(Protocol):
    def forward(self, images: NDArray[Any]) -> NDArray[Any]:
        """Class scores of a batch, one row an image."""
        ...

    def loss_and_gradients(self, images: NDArray[Any], labels: NDArray[Any], weight: float) -> float:
        """The batch's mean cross-entropy, not weighted. Fills `state.gradients` with the gradient of weight x mean."""
        ...


class Backend(Protocol):
    def compile(self, graph: Graph, state: State, batch: int) -> Executable: ...


def backend(name: str) -> Backend:
    if name == "reference":
        from phone_agent.nn.backends.reference import ReferenceBackend

        return ReferenceBackend()
    raise AgentError(f"there is no backend called '{name}'; there is: reference")
