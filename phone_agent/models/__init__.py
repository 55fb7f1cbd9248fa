"""The networks, by name. A model is a module here with `build(classes, shape) -> Graph`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from phone_agent.errors import AgentError
from phone_agent.nn.graph import Graph

NAMES = ("lenet",)


class UnknownModelError(AgentError):
    """Says what there is, and what was probably meant."""

    def __init__(self, name: str) -> None:
        meant = get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"there is: {', '.join(NAMES)}"
        super().__init__(f"there is no model called '{name}'; {hint}")


def build(name: str, classes: int, shape: Sequence[int]) -> Graph:
    if name not in NAMES:
        raise UnknownModelError(name)
    graph: Graph = import_module(f"phone_agent.models.{name}").build(classes, shape)
    return graph
