"""What is not kept for backward but computed again there."""

from __future__ import annotations

from phone_agent.nn.plan.algorithms import Choose
from phone_agent.nn.plan.network import Network, Storage
from phone_agent.nn.plan.places import Places


def choose(network: Network, places: Places, algorithm: Choose, arena_budget: int | None) -> tuple[Storage, ...]:
    return ()
