"""`provision`: collect facts of all phones in parallel, compute what is missing, and do only that, stage by stage.

    facts       one round trip per phone
    packages    apt, from a mirror on this computer
    build       mpi4py on one phone per ABI, unless it is cached; pyopencl likewise, on phones with a GPU
    set up      pyopencl (optional), keys, sshd, Open MPI, mpi4py, agent, boot; facts again, to verify; agent self-test

A phone that fails stops; the others go on. A phone that needs no change is not touched.
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
from orchestrator.provision.bundle import Bundle, build_bundles
from orchestrator.provision.desired_state import DesiredState, ProvisionStep, SshTarget, peer_network
from orchestrator.provision.engine import OnEvent, PhoneFinished, StageStarted, StepResult, StepStatus, dry_run_result
from orchestrator.provision.package_source import PackageSource, default_upstream
from orchestrator.provision.phone_provisioner import PhoneProvisioner, collect_facts
from orchestrator.provision.preflight import TimedFacts
from orchestrator.provision.progress import ProvisionProgress
from orchestrator.provision.report import ProvisionReport
from orchestrator.provision.resources import package_list
from orchestrator.provision.ssh_keys import format_known_hosts, load_ssh_keys, login_public_key
from orchestrator.provision.steps.agent import AgentStep, SelfTestStep
from orchestrator.provision.steps.boot import BootStep
from orchestrator.provision.steps.keys import KeysStep
from orchestrator.provision.steps.openmpi import OpenMpiStep
from orchestrator.provision.steps.packages import PackagesStep
from orchestrator.provision.steps.sshd import SshdStep
from orchestrator.provision.steps.wheel import Mpi4pyStep, PyOpenClStep
from orchestrator.provision.termux.mirror import serve
from orchestrator.provision.termux.snapshot import Snapshot
from orchestrator.provision.termux.upstream import Upstream
from orchestrator.provision.wheel_builds import MPI4PY_BUILD, PYOPENCL_BUILD, WheelBuilds
from orchestrator.provision.wheels import MPI4PY, PYOPENCL, WheelStore

PACKAGES: Final = PackagesStep()
SET_UP: Final[tuple[ProvisionStep, ...]] = (
    KeysStep(),
    SshdStep(),
    OpenMpiStep(),
    Mpi4pyStep(),
    AgentStep(),
    BootStep(),
)
GPU: Final = PyOpenClStep()
SELF_TEST: Final = SelfTestStep()
ALL_STEPS: Final[tuple[ProvisionStep, ...]] = (PACKAGES, *SET_UP, GPU, SELF_TEST)

_FACTS_STAGE: Final = "facts"
_WITHOUT_GPU: Final = "will compute on the CPU only"


@dataclass(frozen=True)
class ProvisionOptions:
    upstream: str | None = None  # None: the repository of the lab, or Termux's own
    offline: bool = False
    dry_run: bool = False


class ProvisionInterrupted(KeyboardInterrupt):
    """Ctrl-C; `report` holds what was done."""

    def __init__(self, report: ProvisionReport) -> None:
        super().__init__()
        self.report = report


def provision(context: FleetContext, options: ProvisionOptions, on_event: OnEvent) -> ProvisionReport:
    """Bring phones to the desired state. Failures are in the report, and remembered for `--limit @failed`."""
    upstream = Upstream(options.upstream or default_upstream(context.cluster, package_list()))
    login_public_key(context.cluster, context.state)
    with (
        tempfile.TemporaryDirectory(prefix="clusterctl-") as scratch,
        Fleet(context.phones, context.state, context.network, key=context.cluster.ssh_key, trust_new=True) as fleet,
    ):
        progress = ProvisionProgress(context.phones, on_event)
        run = _Provisioner(context, options, fleet=fleet, upstream=upstream, scratch=Path(scratch), progress=progress)
        try:
            report = run.run()
        except KeyboardInterrupt as interrupt:
            raise ProvisionInterrupted(run.report()) from interrupt
    if not options.dry_run:
        remember_failed(context.state, (each.phone for each in report.failed))
    return report


class _Provisioner:
    def __init__(
        self,
        context: FleetContext,
        options: ProvisionOptions,
        *,
        fleet: Fleet,
        upstream: Upstream,
        scratch: Path,
        progress: ProvisionProgress,
    ) -> None:
        self._context = context
        self._options = options
        self._fleet = fleet
        self._scratch = scratch
        self._bundles: dict[str, Bundle] = {}
        self._progress = progress
        self._source = PackageSource(
            upstream, package_list(), cache_dir(), progress.note, offline=options.offline, dry_run=options.dry_run
        )
        # Virtual phones are this computer itself, so labs share what they build.
        wheels = cache_dir() / "wheels" if context.cluster.lab is not None else context.state.wheels
        self._mpi4py = WheelBuilds(self._run_stage, progress, WheelStore(cache_dir(), wheels, MPI4PY), MPI4PY_BUILD)
        self._pyopencl = WheelBuilds(
            self._run_stage, progress, WheelStore(cache_dir(), wheels, PYOPENCL), PYOPENCL_BUILD
        )
        self._snapshots: dict[str, Snapshot] = {}

    def run(self) -> ProvisionReport:
        pinned_before = self._known_hosts()
        collected = self._collect_facts()
        desired = self._desired_state(collected)
        self._check_preconditions(collected, desired)
        if self._options.dry_run:
            self._plan(desired)
        elif any(self._is_pending(phone, ALL_STEPS, desired) for phone in self._progress.working):
            with self._mirror(desired) as served:
                self._apply(served)
        else:
            self._record_ok(self._progress.working, ALL_STEPS)
        self._mention_other_phones(pinned_before)
        return self.report()

    def report(self) -> ProvisionReport:
        snapshots = {arch: snapshot.id for arch, snapshot in self._snapshots.items()}
        reports, notes = self._progress.reports, self._progress.notes
        release = ", ".join(sorted(bundle.id for bundle in self._bundles.values()))
        return ProvisionReport(reports, notes, self._options.dry_run, release, snapshots)

    def _known_hosts(self) -> str:
        return format_known_hosts(self._context.cluster, HostKeys(self._context.state.known_hosts))

    def _mention_other_phones(self, pinned_before: str) -> None:
        """Phones outside --limit do not have the host keys that were pinned in this run."""
        others = [phone for phone in self._context.cluster if phone not in set(self._fleet.phones)]
        if others and not self._options.dry_run and self._known_hosts() != pinned_before:
            self._progress.note(f"{fold(others)} do not have the new host keys yet; run: clusterctl provision")

    def _collect_facts(self) -> dict[Phone, TimedFacts]:
        collected: dict[Phone, TimedFacts] = {}

        def task(target: SshTarget) -> None:
            collected[target.phone] = collect_facts(target.connect())

        self._run_stage(_FACTS_STAGE, self._fleet.phones, task)
        self._progress.facts.update({phone: each.facts for phone, each in collected.items()})
        return collected

    def _desired_state(self, collected: dict[Phone, TimedFacts]) -> DesiredState:
        limited = len(self._fleet.phones) < len(self._context.cluster)
        facts = [each.facts for each in collected.values()]
        self._snapshots = self._source.snapshots(facts, keep=limited)
        self._bundles = build_bundles({each.arch for each in facts}, self._scratch)
        desired = DesiredState(
            cluster=self._context.cluster,
            packages=package_list(),
            repositories=self._source.repositories(self._snapshots),
            keys=load_ssh_keys(self._context.cluster, self._context.state),
            bundles=self._bundles,
            mpi4py_version=MPI4PY.version,
            pyopencl_version=PYOPENCL.version,
        )
        return self._pyopencl.add_cached(self._mpi4py.add_cached(desired))

    def _check_preconditions(self, collected: dict[Phone, TimedFacts], desired: DesiredState) -> None:
        for phone, each in collected.items():
            self._progress.warn(phone, preflight.warnings(phone, each, desired))
            try:
                preflight.require_packages(each.facts, desired)
                if self._is_pending(phone, ALL_STEPS, desired):
                    preflight.require_space(each.facts, desired)
            except PhoneError as error:
                self._progress.fail(phone, "preflight", error.message, error.remedy)

    def _plan(self, desired: DesiredState) -> None:
        for phone in self._progress.working:
            facts = self._progress.facts[phone]
            self._progress.record(phone, *(dry_run_result(step.name, step.plan(facts, desired)) for step in ALL_STEPS))

    def _apply(self, desired: DesiredState) -> None:
        def install(target: SshTarget) -> None:
            PhoneProvisioner(target, desired, self._progress).run_steps((PACKAGES,))

        self._run_stage("packages", self._pending_phones((PACKAGES,), desired), install)
        final = self._pyopencl.add_all(self._mpi4py.add_all(desired))

        def set_up(target: SshTarget) -> None:
            phone = PhoneProvisioner(target, final, self._progress)
            gpu_result = phone.apply_optional(GPU)
            if phone.run_steps(SET_UP):
                phone.finish_optional(GPU, gpu_result, _WITHOUT_GPU)
                phone.run_unverified(SELF_TEST)

        self._run_stage("set up", self._pending_phones((*SET_UP, GPU, SELF_TEST), final), set_up)

    def _pending_phones(self, steps: tuple[ProvisionStep, ...], desired: DesiredState) -> tuple[Phone, ...]:
        """Phones with something to do in these steps. For the others, the steps are recorded as ok."""
        pending = tuple(phone for phone in self._progress.working if self._is_pending(phone, steps, desired))
        self._record_ok((phone for phone in self._progress.working if phone not in pending), steps)
        return pending

    def _is_pending(self, phone: Phone, steps: Iterable[ProvisionStep], desired: DesiredState) -> bool:
        return any(step.plan(self._progress.facts[phone], desired) for step in steps)

    def _record_ok(self, phones: Iterable[Phone], steps: Iterable[ProvisionStep]) -> None:
        results = [StepResult(step.name, StepStatus.OK) for step in steps]
        for phone in tuple(phones):
            self._progress.record(phone, *results)

    def _run_stage(self, title: str, phones: Iterable[Phone], task: Callable[[SshTarget], None]) -> None:
        """Run a task on phones in parallel. An exception fails its phone in this stage."""
        selected = tuple(phones)
        if not selected:
            return

        def on_done(outcome: Outcome[None]) -> None:
            if not outcome.ok:
                step = outcome.phase.value if title == _FACTS_STAGE and outcome.phase else title
                error = outcome.error or str(outcome.status)
                self._progress.fail(outcome.phone, step, error, outcome.remedy, outcome.seconds)
            self._progress.emit(PhoneFinished(outcome.phone))

        self._progress.emit(StageStarted(title, selected))
        self._fleet.map(lambda connection: task(self._target(connection)), selected, on_done=on_done)

    def _target(self, connection: PhoneConnection) -> SshTarget:
        phone = connection.phone
        return SshTarget(phone, lambda: self._fleet.connection(phone), lambda: self._verify_new_login(phone))

    def _verify_new_login(self, phone: Phone) -> None:
        context = self._context
        with Fleet((phone,), context.state, context.network, key=context.cluster.ssh_key) as another:
            another.connection(phone).run(["true"], check=True)

    @contextmanager
    def _mirror(self, desired: DesiredState) -> Iterator[DesiredState]:
        """Serve the snapshots on the wired network."""
        context = self._context
        address = str(context.cluster.host or context.network.source_address(str(self._fleet.phones[0].address)))
        try:
            listener = context.network.listen(address, 0)
        except OSError as error:
            raise ClusterctlError(
                f"cannot serve packages at {address}: {error}",
                remedy="set network.host in the inventory to this computer's address on the wired network",
            ) from error
        with serve(cache_dir() / "termux", listener, peer_network(context.cluster.subnet)) as url:
            yield replace(desired, repositories=self._source.repositories(self._snapshots, url))
