"""What most commands work on."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.fleet.network import Network
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState


@dataclass(frozen=True)
class Rack:
    """Phones, the cluster they belong to, what is known of it here, and the way to reach them."""

    cluster: Cluster
    phones: tuple[Phone, ...]
    state: ClusterState
    network: Network
