"""What staging and starting a run work with: the cluster, its phones, its state on this computer."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState
from orchestrator.records.record import RunStore
from phone_agent.contract.schema import RunSpec

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet

_LOCK_TIMEOUT_S = 0.5  # `launch_in_progress` takes it for a moment

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
    with _lock_file(state).open("w") as lock:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while not _try(lock, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise ClusterctlError("another launch is in progress on this cluster", remedy="clusterctl runs")
            time.sleep(0.1)
        yield


def launch_in_progress(state: ClusterState) -> bool:
    if not _lock_file(state).exists():
        return False
    with _lock_file(state).open() as lock:
        return not _try(lock, fcntl.LOCK_SH)


def _lock_file(state: ClusterState) -> Path:
    return state.root / "launch.lock"


def _try(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
