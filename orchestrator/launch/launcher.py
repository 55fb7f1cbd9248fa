"""Bring a run from flags to ranks: check the phones, plan, stage, start."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.data.push import Push
from orchestrator.errors import ClusterctlError
from orchestrator.fleet import agent
from orchestrator.fleet.result import Outcome, Outcomes
from orchestrator.health.health import PhoneHealth, ask_all
from orchestrator.inventory import fold, hostfile, remember_failed
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.launch.dataset import Dataset
from orchestrator.launch.initial_weights import Start
from orchestrator.launch.mpirun import launch_spec
from orchestrator.launch.run_spec import common_ssh_port
from orchestrator.paths import ClusterState
from orchestrator.records.causes import Cause
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.text import count_of, one_line
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import RunSpec
from phone_agent.contract.sharding import rank_spans

if TYPE_CHECKING:
    from orchestrator.data.store import StoredDataset
    from orchestrator.fleet import Fleet, PhoneConnection

NOTHING_GIVEN = Start()
OnProgress = Callable[[str, int, int], None]  # what is being done, phones done, phones in all


class StagingError(ClusterctlError):
    """Some phones did not take the run's files. Nothing was started."""

    def __init__(self, failures: Sequence[Outcome[int]]) -> None:
        lines = [f"  {each.phone.name} ({each.phone.where}): {each.error}" for each in failures]
        count = f"{count_of(failures, 'phone')} did not take the run's files; nothing was started:"
        limit = fold(each.phone for each in failures)
        self.phones = tuple(each.phone.name for each in failures)
        self.summary = one_line(lines[-1].strip())
        codes = {each.code for each in failures}
        self.cause = Cause.DISK_FULL if codes == {ErrorCode.DISK_FULL} else Cause.RESTART_FAILED
        super().__init__("\n".join([count, *lines]), remedy=f"clusterctl status --limit {limit}")


@dataclass(frozen=True)
class Launcher:
    cluster: Cluster
    state: ClusterState
    fleet: Fleet
    on_progress: OnProgress

    @property
    def store(self) -> RunStore:
        return RunStore(self.state.runs)

    def check(self) -> tuple[PhoneHealth, ...]:
        return ask_all(self.fleet, self._counter("checking", len(self.fleet.phones)))

    def run(
        self,
        spec: RunSpec,
        dataset: Dataset,
        start: Start = NOTHING_GIVEN,
        *,
        whole: bool | None = None,
    ) -> RunRecord:
        """Stages and starts; afterwards the run goes on without this computer. `whole`: as in bring_data."""
        if spec.parent:
            whole = spec.data.replicated  # a resumed run takes samples in the order that was begun
        spec = self.bring_data(spec, self._phones(spec), dataset.stored, whole=whole)
        record = self.store.create(spec)
        start.keep(spec, self.store.directory(spec.run_id))
        try:
            self.stage(spec, start)
            self.start(spec)
        except (ClusterctlError, KeyboardInterrupt) as error:
            why = error.message if isinstance(error, ClusterctlError) else "interrupted before it was started"
            self.store.save(replace(record, state="failed", error=why))
            raise
        record = replace(record, state="starting")
        self.store.save(record)
        return record

    def stage(self, spec: RunSpec, start: Start) -> None:
        """Puts an attempt of a run that is recorded already on its phones."""
        phones = self._phones(spec)

        def stage(connection: PhoneConnection) -> int:
            start.stage(connection, spec, Path(scratch))
            return stage_phone(connection, spec, hosts)

        with tempfile.TemporaryDirectory(prefix="clusterctl-run-") as scratch:
            hosts = hostfile(phones)
            outcomes = self.fleet.map(stage, phones, on_done=self._counter("staging on", len(phones)))
        self._refuse_failures(outcomes)

    def bring_data(
        self, spec: RunSpec, phones: Sequence[Phone], stored: StoredDataset | None, *, whole: bool | None = None
    ) -> RunSpec:
        """What phones lack of the samples; the specification then says whether they have all of them. `whole`: whether
        they are to; None decides by what is there."""
        if stored is None:
            return spec
        batches = [rank.batch for rank in spec.ranks]
        spans = [rank_spans(spec.data, batches, rank) for rank in range(len(batches))]
        tell = self._data_counter(stored.name, len(phones))
        done = Push(self.fleet, stored, phones, spans, whole, on_progress=tell).run()
        self._refuse_failures(done.outcomes)
        return replace(spec, data=replace(spec.data, replicated=done.whole))

    def _data_counter(self, name: str, total: int) -> Callable[[int, int, Sequence[Phone]], None]:
        return lambda _sent, _size, left: self.on_progress(f"pushing {name} to", total - len(left), total)

    def _refuse_failures(self, outcomes: Outcomes[int]) -> None:
        if outcomes.failures:
            remember_failed(self.state, [outcome.phone for outcome in outcomes.failures])
            raise StagingError(outcomes.failures)

    def start(self, spec: RunSpec) -> None:
        """Of an attempt that is staged: mpirun, on the head phone."""
        self.on_progress("starting on", 0, len(spec.ranks))
        phones = self._phones(spec)
        launch = launch_spec(spec, self.cluster.subnet, common_ssh_port(phones))
        connection = self.fleet.connection(phones[0])
        directory = layout.attempt_dir(spec.run_id, spec.attempt)
        connection.put(launch.to_json().encode(), directory / layout.LAUNCH_FILE)
        agent.call(connection, "start", spec.run_id, "--attempt", str(spec.attempt))
        self.on_progress("starting on", len(spec.ranks), len(spec.ranks))

    def _phones(self, spec: RunSpec) -> list[Phone]:
        return [self.cluster.phone(rank.phone) for rank in spec.ranks]

    def _counter(self, what: str, total: int) -> Callable[[Any], None]:
        done = iter(range(1, total + 1))
        self.on_progress(what, 0, total)
        return lambda _outcome: self.on_progress(what, next(done), total)


def stage_phone(connection: PhoneConnection, spec: RunSpec, hosts: str) -> int:
    """Puts an attempt's files on a phone; returns how many there are."""
    directory = layout.attempt_dir(spec.run_id, spec.attempt)
    connection.put(spec.to_json().encode(), directory / layout.RUN_FILE)
    connection.put(hosts.encode(), directory / layout.HOSTFILE)
    return 2


@contextmanager
def one_launch_at_a_time(state: ClusterState) -> Iterator[None]:
    """Two launches checking the phones at the same moment would both find them free."""
    state.root.mkdir(parents=True, exist_ok=True)
    with (state.root / "launch.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterctlError("another launch is under way on this cluster", remedy="clusterctl runs") from None
        yield
