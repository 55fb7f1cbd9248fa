"""What most commands need to work on phones."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.fleet.network import Network
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState


@dataclass(frozen=True)
class FleetContext:
    """The selected phones, their cluster, its state on this computer, and the network to reach them."""

    cluster: Cluster
    phones: tuple[Phone, ...]
    state: ClusterState
    network: Network
