"""What staging and starting a run work with: the cluster, its phones, its state on this computer."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState
from orchestrator.records.record import RunStore
from phone_agent.contract.schema import RunSpec

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet

OnProgress = Callable[[str, int, int], None]  # what is being done, phones done, phones in total


@dataclass(frozen=True)
class LaunchContext:
    cluster: Cluster
    state: ClusterState
    fleet: Fleet
    on_progress: OnProgress

    @property
    def store(self) -> RunStore:
        return RunStore(self.state.runs)

    def phones_of(self, spec: RunSpec) -> list[Phone]:
        return [self.cluster.phone(rank.phone) for rank in spec.ranks]

    def counter(self, what: str, total: int) -> Callable[[Any], None]:
        """A callback that reports one more phone as done each time."""
        done = iter(range(1, total + 1))
        self.on_progress(what, 0, total)
        return lambda _outcome: self.on_progress(what, next(done), total)


@contextmanager
def launch_lock(state: ClusterState) -> Iterator[None]:
    """One launch at a time per cluster: two that check the phones at the same moment would both find them idle."""
    state.root.mkdir(parents=True, exist_ok=True)
    with (state.root / "launch.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterctlError("another launch is in progress on this cluster", remedy="clusterctl runs") from None
        yield
