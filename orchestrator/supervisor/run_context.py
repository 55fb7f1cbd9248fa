"""From the record of a run to the phones that may take part in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import PhoneError, UsageError
from orchestrator.fleet import Fleet
from orchestrator.fleet.timeouts import Timeouts
from orchestrator.inventory import load
from orchestrator.lab.network import open_network
from orchestrator.launch.context import LaunchContext, OnProgress
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection
    from orchestrator.inventory.model import Cluster
    from orchestrator.paths import ClusterState
    from orchestrator.records.record import RunRecord

TCP_S = 2.0  # connect timeout: a phone of a run that needs longer counts as unreachable


@contextmanager
def open_run(state: ClusterState, record: RunRecord, on_progress: OnProgress) -> Iterator[LaunchContext]:
    """The inventory is read again each time: a phone may have been replaced. Connections are made when needed."""
    cluster = load(Path(record.inventory))
    with open_run_fleet(cluster, state, record) as fleet:
        yield LaunchContext(cluster, state, fleet, on_progress)


def connection_to(fleet: Fleet, name: str) -> PhoneConnection:
    """To a phone of a run, which may have been removed from the inventory since."""
    phone = next((phone for phone in fleet.phones if phone.name == name), None)
    if phone is None:
        raise PhoneError(f"{name} is not in the inventory any more", code=ErrorCode.NO_ANSWER)
    return fleet.connection(phone)


def open_run_fleet(cluster: Cluster, state: ClusterState, record: RunRecord) -> Fleet:
    """All phones that may take part in the run."""
    names = {*record.phones, *record.requested, *record.spares}
    phones = [phone for phone in cluster.phones if phone.name in names]
    if not phones:
        raise UsageError(
            f"no phone of {record.run_id} is in {cluster.source}",
            remedy="pass the inventory that the run was launched with: -i FILE",
        )
    return Fleet(phones, state, open_network(cluster), key=cluster.ssh_key, timeouts=Timeouts(tcp=TCP_S))
