"""The whole work: look at all phones at once, decide, then do what is missing, stage by stage.

    look        one round trip a phone: facts
    packages    apt from a mirror on this computer
    build       mpi4py on one phone of each kind, unless it was built before; pyopencl likewise, where there is a GPU
    set up      pyopencl, which a phone can do without; keys, sshd, Open MPI, mpi4py, agent, boot; then facts again, to
                verify; then the agent's self-test

A phone that fails stops; the others go on. A phone that lacks nothing is looked at and left alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import Fleet, HostKeys, PhoneConnection
from orchestrator.fleet.context import FleetContext
from orchestrator.fleet.result import Outcome
from orchestrator.inventory import fold, remember_failed
from orchestrator.inventory.model import Phone
from orchestrator.paths import cache_dir
from orchestrator.provision import preflight
from orchestrator.provision.builds import FOR_GPUS, FOR_MPI, Builds
from orchestrator.provision.bundle import Bundle, build_bundles
from orchestrator.provision.desired_state import Want, peers
from orchestrator.provision.events import OnEvent, PhoneFinished, StageStarted
from orchestrator.provision.gather_desired import PackageSource, default_upstream, gather_keys, host_key, known_hosts
from orchestrator.provision.preflight import Asked
from orchestrator.provision.progress import Ledger
from orchestrator.provision.report import Report, StepResult, StepStatus
from orchestrator.provision.resources import package_list
from orchestrator.provision.steps.agent import Agent
from orchestrator.provision.steps.boot import Boot
from orchestrator.provision.steps.keys import Keys
from orchestrator.provision.steps.mpi4py import Mpi4py
from orchestrator.provision.steps.openmpi import OpenMpi
from orchestrator.provision.steps.packages import Packages
from orchestrator.provision.steps.pyopencl import PyOpenCl
from orchestrator.provision.steps.selftest import SelfTest
from orchestrator.provision.steps.sshd import Sshd
from orchestrator.provision.steps.step import Site, Step
from orchestrator.provision.termux.mirror import serve
from orchestrator.provision.termux.snapshot import Snapshot
from orchestrator.provision.termux.upstream import Upstream
from orchestrator.provision.wheels import MPI4PY, PYOPENCL, WheelStore
from orchestrator.provision.worker import Worker, look

PACKAGES: Final = Packages()
SET_UP: Final[tuple[Step, ...]] = (Keys(), Sshd(), OpenMpi(), Mpi4py(), Agent(), Boot())
GPU: Final = PyOpenCl()
WITHOUT_GPU: Final = "computes on its processor only"
SELF_TEST: Final = SelfTest()
ALL_STEPS: Final[tuple[Step, ...]] = (PACKAGES, *SET_UP, GPU, SELF_TEST)


@dataclass(frozen=True)
class Options:
    upstream: str | None = None  # None: the inventory's lab, or Termux's own repository
    offline: bool = False
    dry_run: bool = False


class ProvisionInterrupted(KeyboardInterrupt):
    """Ctrl-C; `report` holds what was done."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


def provision(rack: FleetContext, options: Options, on_event: OnEvent) -> Report:
    """Brings phones to what they should be; failures are in the report, and remembered for `--limit @failed`."""
    upstream = Upstream(options.upstream or default_upstream(rack.cluster, package_list()))
    host_key(rack.cluster, rack.state)
    with (
        tempfile.TemporaryDirectory(prefix="clusterctl-") as scratch,
        Fleet(rack.phones, rack.state, rack.network, key=rack.cluster.ssh_key, trust_new=True) as fleet,
    ):
        ledger = Ledger(rack.phones, on_event)
        run = _Run(rack, options, fleet=fleet, upstream=upstream, scratch=Path(scratch), ledger=ledger)
        try:
            report = run.all()
        except KeyboardInterrupt as interrupt:
            raise ProvisionInterrupted(run.report()) from interrupt
    if not options.dry_run:
        remember_failed(rack.state, (each.phone for each in report.failed))
    return report


class _Run:
    def __init__(
        self, rack: FleetContext, options: Options, *, fleet: Fleet, upstream: Upstream, scratch: Path, ledger: Ledger
    ) -> None:
        self._rack = rack
        self._options = options
        self._fleet = fleet
        self._scratch = scratch
        self._bundles: dict[str, Bundle] = {}
        self._ledger = ledger
        self._source = PackageSource(
            upstream, package_list(), cache_dir(), ledger.note, offline=options.offline, dry_run=options.dry_run
        )
        self._builds = Builds(self._stage, ledger, WheelStore(cache_dir(), MPI4PY), FOR_MPI)
        self._gpu_builds = Builds(self._stage, ledger, WheelStore(cache_dir(), PYOPENCL), FOR_GPUS)
        self._snapshots: dict[str, Snapshot] = {}

    def all(self) -> Report:
        met_before = self._met()
        asked = self._look()
        want = self._decide(asked)
        self._inspect(asked, want)
        if self._options.dry_run:
            self._plan(want)
        elif any(self._pending(phone, ALL_STEPS, want) for phone in self._ledger.working):
            with self._mirror(want) as served:
                self._do(served)
        else:
            self._leave_alone(self._ledger.working, ALL_STEPS)
        self._point_to_the_others(met_before)
        return self.report()

    def report(self) -> Report:
        snapshots = {arch: snapshot.id for arch, snapshot in self._snapshots.items()}
        reports, notes = self._ledger.reports, self._ledger.notes
        release = ", ".join(sorted(bundle.id for bundle in self._bundles.values()))
        return Report(reports, notes, self._options.dry_run, release, snapshots)

    def _met(self) -> str:
        return known_hosts(self._rack.cluster, HostKeys(self._rack.state.known_hosts))

    def _point_to_the_others(self, met_before: str) -> None:
        """Phones outside --limit do not know the host keys that were met for the first time in this run."""
        others = [phone for phone in self._rack.cluster if phone not in set(self._fleet.phones)]
        if others and not self._options.dry_run and self._met() != met_before:
            self._ledger.note(f"{fold(others)} have yet to learn the new host keys: clusterctl provision")

    def _look(self) -> dict[Phone, Asked]:
        asked: dict[Phone, Asked] = {}

        def task(site: Site) -> None:
            asked[site.phone] = look(site.connect())

        self._stage("look", self._fleet.phones, task)
        self._ledger.facts.update({phone: each.facts for phone, each in asked.items()})
        return asked

    def _decide(self, asked: dict[Phone, Asked]) -> Want:
        limited = len(self._fleet.phones) < len(self._rack.cluster)
        facts = [each.facts for each in asked.values()]
        self._snapshots = self._source.snapshots(facts, keep=limited)
        self._bundles = build_bundles({each.arch for each in facts}, self._scratch)
        want = Want(
            cluster=self._rack.cluster,
            packages=package_list(),
            repositories=self._source.repositories(self._snapshots),
            keys=gather_keys(self._rack.cluster, self._rack.state),
            bundles=self._bundles,
            mpi4py_version=MPI4PY.version,
            pyopencl_version=PYOPENCL.version,
        )
        return self._gpu_builds.known(self._builds.known(want))

    def _inspect(self, asked: dict[Phone, Asked], want: Want) -> None:
        """Warnings for all; phones on which the work would be in vain fail here."""
        for phone, each in asked.items():
            self._ledger.warn(phone, preflight.warnings(phone, each, want))
            try:
                preflight.require_packages(each.facts, want)
                if self._pending(phone, ALL_STEPS, want):
                    preflight.require_space(each.facts, want)
            except PhoneError as error:
                self._ledger.fail(phone, "preflight", error.message, error.remedy)

    def _plan(self, want: Want) -> None:
        for phone in self._ledger.working:
            for step in ALL_STEPS:
                changes = step.check(self._ledger.facts[phone], want)
                status = StepStatus.PLANNED if changes else StepStatus.OK
                self._ledger.record(phone, StepResult(step.name, status, changes=changes))

    def _do(self, want: Want) -> None:
        self._stage("packages", self._busy((PACKAGES,), want), self._worker_task(want, (PACKAGES,)))
        want = self._gpu_builds.make(self._builds.make(want))

        def set_up(site: Site) -> None:
            worker = Worker(site, want, self._ledger)
            attempted = worker.attempt(GPU)
            if worker.take_through(SET_UP):
                worker.settle(GPU, attempted, WITHOUT_GPU)
                worker.finish_with(SELF_TEST)

        self._stage("set up", self._busy((*SET_UP, GPU, SELF_TEST), want), set_up)

    def _worker_task(self, want: Want, steps: tuple[Step, ...]) -> Callable[[Site], None]:
        def task(site: Site) -> None:
            Worker(site, want, self._ledger).take_through(steps)

        return task

    def _busy(self, steps: tuple[Step, ...], want: Want) -> tuple[Phone, ...]:
        """Phones with something to do in these steps; of the others it is recorded that there was nothing."""
        busy = tuple(phone for phone in self._ledger.working if self._pending(phone, steps, want))
        self._leave_alone((phone for phone in self._ledger.working if phone not in busy), steps)
        return busy

    def _pending(self, phone: Phone, steps: Iterable[Step], want: Want) -> bool:
        return any(step.check(self._ledger.facts[phone], want) for step in steps)

    def _leave_alone(self, phones: Iterable[Phone], steps: Iterable[Step]) -> None:
        results = [StepResult(step.name, StepStatus.OK) for step in steps]
        for phone in tuple(phones):
            self._ledger.record(phone, *results)

    def _stage(self, title: str, phones: Iterable[Phone], task: Callable[[Site], None]) -> None:
        """Runs a task on phones at once. Whatever it does not catch itself fails that phone in this stage."""
        chosen = tuple(phones)
        if not chosen:
            return

        def done(outcome: Outcome[None]) -> None:
            if not outcome.ok:
                step = outcome.phase.value if title == "look" and outcome.phase else title
                error = outcome.error or str(outcome.status)
                self._ledger.fail(outcome.phone, step, error, outcome.remedy, outcome.seconds)
            self._ledger.emit(PhoneFinished(outcome.phone))

        self._ledger.emit(StageStarted(title, chosen))
        self._fleet.map(lambda connection: task(self._site(connection)), chosen, on_done=done)

    def _site(self, connection: PhoneConnection) -> Site:
        phone = connection.phone
        return Site(phone, lambda: self._fleet.connection(phone), lambda: self._log_in_afresh(phone))

    def _log_in_afresh(self, phone: Phone) -> None:
        with Fleet((phone,), self._rack.state, self._rack.network, key=self._rack.cluster.ssh_key) as another:
            another.connection(phone).run(["true"], check=True)

    @contextmanager
    def _mirror(self, want: Want) -> Iterator[Want]:
        """Serves the snapshots to the wired network while the work lasts."""
        address = str(self._rack.cluster.host or self._rack.network.source_address(str(self._fleet.phones[0].address)))
        try:
            listener = self._rack.network.listen(address, 0)
        except OSError as error:
            raise ClusterctlError(
                f"cannot serve packages at {address}: {error}",
                remedy="network.host in the inventory must be this computer's address on the wired network",
            ) from error
        with serve(cache_dir() / "termux", listener, peers(self._rack.cluster.subnet)) as url:
            yield replace(want, repositories=self._source.repositories(self._snapshots, url))
