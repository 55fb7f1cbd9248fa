"""From flags to the objects that a command works with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.fleet.context import FleetContext
from orchestrator.inventory import load, select
from orchestrator.lab.network import open_network
from orchestrator.paths import ClusterState, known_clusters, lab_inventory

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet
    from orchestrator.records.record import RunRecord


class Session(FleetContext):
    """The phones selected from an inventory."""

    @contextmanager
    def fleet(self, *, trust_new_hosts: bool = False) -> Iterator[Fleet]:
        """On Ctrl-C, prints which phones had answered and which had not."""
        from orchestrator.fleet import Fleet, FleetInterrupted

        with Fleet(self.phones, self.state, self.network, key=self.cluster.ssh_key, trust_new=trust_new_hosts) as fleet:
            try:
                yield fleet
            except FleetInterrupted as interrupted:
                from orchestrator.view.outcomes import print_outcomes

                print_outcomes(interrupted.outcomes)
                raise


def find_inventory(given: Path | None) -> Path:
    if given is None and (variable := os.environ.get("CLUSTERCTL_INVENTORY")):
        given = Path(variable)
    if given is not None:
        return given
    if lab_inventory().exists():
        return lab_inventory()
    if (here := Path("inventory.yaml")).exists():
        return here
    raise UsageError(
        "no inventory found: no lab is running and there is no ./inventory.yaml", remedy="clusterctl lab up --phones 4"
    )


def open_session(inventory: Path | None, limit: str | None = None) -> Session:
    cluster = load(find_inventory(inventory))
    state = ClusterState(cluster.name)
    return Session(cluster, select(cluster, limit, state), state, open_network(cluster))


def open_run_session(run: str | None, inventory: Path | None) -> tuple[Session, RunRecord]:
    """A run and its cluster. A run id is enough to find both; without one, it is the newest run of the cluster."""
    from orchestrator.records.record import RunStore, find_run

    if run is not None and inventory is None:
        inventory = Path(find_run(known_clusters(), run).record.inventory)
    session = open_session(inventory)
    return session, RunStore(session.state.runs).find(run)


def selected_clusters(inventory: Path | None) -> list[ClusterState]:
    """For commands that only read files on this computer: without an inventory, all clusters."""
    return known_clusters() if inventory is None else [ClusterState(load(inventory).name)]
