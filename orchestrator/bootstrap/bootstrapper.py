"""`bootstrap`: several phones on USB in parallel, each through all steps, then recorded in the inventory.

A phone that fails stops; the others go on. Every run starts from fresh facts, so an interrupted bootstrap is simply run
again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from orchestrator.bootstrap import eligibility, termux
from orchestrator.bootstrap.adb import Adb, AdbError
from orchestrator.bootstrap.android_facts import collect_android_facts
from orchestrator.bootstrap.apk import read_apks
from orchestrator.bootstrap.assignment import Assignment, UsbPhone, assign, parse_assignments, select_usb_phones
from orchestrator.bootstrap.device_monitor import DeviceMonitor
from orchestrator.bootstrap.journal import Journal, JournalEntry, timestamp
from orchestrator.bootstrap.login import accepts_login
from orchestrator.bootstrap.report import LAST_STEP, BootstrapReport, Event, OnEvent, PhoneBootstrapReport, Waiting
from orchestrator.bootstrap.repositories import Repositories, serve_repositories
from orchestrator.bootstrap.steps import STEPS
from orchestrator.bootstrap.steps.step import Action, AdbTarget, BootstrapConfig, PhoneFacts
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet import FleetInterrupted, HostKeys
from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.parallel import map_phones
from orchestrator.fleet.result import Outcome, Status
from orchestrator.inventory import remember_failed
from orchestrator.inventory.edit import PhoneIdentity, record_identity
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState, cache_dir
from orchestrator.provision.engine import (
    Note,
    PhoneFinished,
    StageStarted,
    StepFinished,
    StepResult,
    StepRunner,
    StepStarted,
    StepStatus,
    dry_run_result,
)
from orchestrator.provision.package_source import PackageSource, default_upstream
from orchestrator.provision.resources import package_list
from orchestrator.provision.ssh_keys import key_body, login_public_key
from orchestrator.provision.termux.upstream import Upstream
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode

_MAX_PARALLEL: Final = 32
_NEEDS_RESTART: Final = ("files", "open-apps")  # even if an sshd answers already: it does not use these changes yet
_EFFECT_SECONDS: Final = 10.0  # Android applies some settings with a delay


@dataclass(frozen=True)
class BootstrapOptions:
    apks: Path
    serials: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    fill_free: bool = False
    wait: float = 300.0  # for a person
    ntp: IPv4Address | None = None
    upstream: str | None = None
    offline: bool = False
    dry_run: bool = False


class BootstrapInterrupted(KeyboardInterrupt):
    """Ctrl-C; `report` holds what was done."""

    def __init__(self, report: BootstrapReport) -> None:
        super().__init__()
        self.report = report


def bootstrap(
    cluster: Cluster, phones: Sequence[Phone], state: ClusterState, options: BootstrapOptions, on_event: OnEvent
) -> BootstrapReport:
    """Raises UsageError before any phone is changed; failures of phones are in the report."""
    if cluster.lab is not None:
        raise UsageError("virtual phones have no USB port", remedy="use the inventory of your rack: -i inventory.yaml")
    apks = read_apks(options.apks)
    upstream = Upstream(options.upstream or default_upstream(cluster, package_list()))
    adb = Adb.find()
    assignments = _assign(adb, cluster, phones, options)
    if not options.dry_run:
        _require_writable(cluster.source)
    config = BootstrapConfig(cluster, apks, login_public_key(cluster, state), options.ntp or cluster.host)
    source = PackageSource(
        upstream,
        package_list(),
        cache_dir(),
        lambda message: on_event(Note(message)),
        offline=options.offline,
        dry_run=False,
    )
    with serve_repositories(source) as repositories:
        return _Bootstrapper(adb, assignments, config, state, options, repositories, on_event).run()


def _assign(adb: Adb, cluster: Cluster, phones: Sequence[Phone], options: BootstrapOptions) -> tuple[Assignment, ...]:
    pairs = parse_assignments(options.pairs, cluster)
    attached = [UsbPhone(each.name, _serial(adb, each.name, online=each.online)) for each in adb.devices()]
    selected = select_usb_phones(attached, options.serials)
    return assign(selected, cluster, phones, pairs, fill_free=options.fill_free)


def _serial(adb: Adb, name: str, *, online: bool) -> str:
    """On USB the name that adb gives a phone is its serial number; over a network it is an address."""
    if ":" not in name or not online:
        return name
    serial = adb.device(name).shell("getprop", "ro.serialno").stdout.strip()
    return serial if serial.isascii() and serial.isprintable() and serial else name


def _require_writable(inventory: Path) -> None:
    if not os.access(inventory, os.W_OK) or not os.access(inventory.absolute().parent, os.W_OK):
        raise UsageError(
            f"{inventory} is not writable: bootstrap records serial numbers and host keys in it",
            remedy=f"chmod u+w {inventory}, or copy it to a directory of yours",
        )


class _Bootstrapper:
    def __init__(  # noqa: PLR0917  (constructed in one place)
        self,
        adb: Adb,
        assignments: Sequence[Assignment],
        config: BootstrapConfig,
        state: ClusterState,
        options: BootstrapOptions,
        repositories: Repositories,
        on_event: OnEvent,
    ) -> None:
        self.adb = adb
        self.config = config
        self.state = state
        self.options = options
        self.repositories = repositories
        self.monitor = DeviceMonitor(adb)
        self.journal = Journal(state)
        self._assignments = {each.phone: each for each in assignments}
        self._on_event = on_event
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        with self._lock:
            self._on_event(event)

    def run(self) -> BootstrapReport:
        phones = tuple(self._assignments)
        workers = {phone: _PhoneBootstrapper(self, each) for phone, each in self._assignments.items()}

        def work(phone: Phone) -> Outcome[None]:
            started = time.monotonic()
            workers[phone].run()
            return Outcome(phone, Status.OK, time.monotonic() - started)

        self.emit(StageStarted("bootstrap", phones))
        try:
            map_phones(work, phones, _MAX_PARALLEL, lambda outcome: self.emit(PhoneFinished(outcome.phone)))
        except FleetInterrupted:
            raise BootstrapInterrupted(self._report(workers.values())) from None
        report = self._report(workers.values())
        if not self.options.dry_run:
            remember_failed(self.state, (each.phone for each in report.failed))
        return report

    def _report(self, workers: Iterable[_PhoneBootstrapper]) -> BootstrapReport:
        reports = tuple(worker.report for worker in workers)
        return BootstrapReport(reports, self.journal.remaining(self.config.cluster), dry_run=self.options.dry_run)


class _PhoneBootstrapper:
    """Bootstraps one phone."""

    def __init__(self, run: _Bootstrapper, assignment: Assignment) -> None:
        usb_phone = assignment.usb_phone
        self._run = run
        self._phone = assignment.phone
        self._device = run.adb.device(usb_phone.name)
        self._step = "attach"  # the current one, for the report of a failure
        self.report = PhoneBootstrapReport(assignment.phone, usb_phone.name, usb_phone.serial)

    def run(self) -> None:
        """Failures are in the report."""
        started = time.monotonic()
        try:
            self._attach()
            facts = self._inspect()
            if self._run.options.dry_run:
                self._plan(facts)
                return
            with self._run.journal.entry(facts.android.serial, self._phone) as entry:
                self._set_up(facts, entry)
        except ClusterctlError as error:
            self._fail(error.message, error.remedy, time.monotonic() - started)
        except OSError as error:  # of this computer: a full disk, no more file descriptors
            self._fail(f"on this computer: {error}", None, time.monotonic() - started)

    @property
    def _wait_seconds(self) -> float:
        return 0.0 if self._run.options.dry_run else self._run.options.wait

    def _attach(self) -> None:
        self._run.monitor.wait_online(self._device.name, self._wait_seconds, self._on_wait)

    def _inspect(self) -> PhoneFacts:
        """Collect facts. Waits for what a person has to do at the phone; raises AdbError if it is not supported."""
        self._step = "inspect"
        facts = self._collect_facts()
        deadline = time.monotonic() + self._wait_seconds
        while task := eligibility.manual_step(facts.android):
            if time.monotonic() > deadline:
                raise AdbError("it needs a manual step", code=ErrorCode.NEEDS_A_PERSON, remedy=task)
            self._on_wait(task)
            time.sleep(0.5)
            facts = self._collect_facts()
        android = facts.android
        eligibility.require_supported(android, self._run.config)
        self.report = replace(
            self.report,
            serial=android.serial,
            device=android.device,
            mac=android.mac,
            warnings=eligibility.warnings(android),
        )
        return facts

    def _plan(self, facts: PhoneFacts) -> None:
        config = self._run.config
        plans = {step.name: step.plan(facts, config) for step in STEPS}
        recorded = self._phone.serial and self._phone.host_key
        record = Action(f"write serial number and host key of {self._phone.name} to {config.cluster.source}", ())
        plans[LAST_STEP] = () if recorded else (record,)
        for step, actions in plans.items():
            self._add(dry_run_result(step, actions))
        self.report = replace(self.report, actions=tuple(action for actions in plans.values() for action in actions))

    def _set_up(self, facts: PhoneFacts, entry: JournalEntry) -> None:
        entry.phone, entry.device, entry.finished = self._phone.name, facts.android.device, None
        entry.apks = {apk.package: apk.sha256 for apk in self._run.config.apks}
        runner = StepRunner(
            self._target(), facts, self._run.config, collect_facts=self._collect_facts, on_start=self._on_start
        )
        for step in STEPS:
            [result] = runner.run([step], patience_s=_EFFECT_SECONDS)
            self._add(result)
            if result.status is StepStatus.FAILED:
                return
            if result.status is StepStatus.CHANGED:
                if step.name in _NEEDS_RESTART:
                    runner.facts = PhoneFacts(runner.facts.android, runner.facts.termux)
                entry.steps[step.name] = timestamp()
                self._run.journal.save(entry)
        entry.host_key = self._record(runner.facts)
        entry.finished = timestamp()
        self._run.journal.save(entry)

    def _on_start(self, step: str) -> None:
        self._step = step
        self._run.emit(StepStarted(self._phone, step))

    def _record(self, facts: PhoneFacts) -> str:
        """Pin the phone's host key, and write its identity to the inventory."""
        self._step = LAST_STEP
        key = termux.read_host_key(self._device)
        changed = self._pin(HostKey(*key.split()))
        changed |= record_identity(
            self._run.config.cluster.source, self._phone, PhoneIdentity(facts.android.serial, facts.android.mac, key)
        )
        self.report = replace(self.report, host_key=key)
        changes = (f"write serial number and host key of {self._phone.name} to the inventory",) if changed else ()
        self._add(StepResult(LAST_STEP, StepStatus.CHANGED if changed else StepStatus.OK, changes=changes))
        return key

    def _pin(self, key: HostKey) -> bool:
        """A key that was read over the cable replaces one that was pinned over the network."""
        pins = HostKeys(self._run.state.known_hosts)
        unlisted = replace(self._phone, host_key=None)
        if pins.pinned(unlisted) == key:
            return False
        pins.forget([unlisted])
        pins.accept(unlisted, key)
        return True

    def _collect_facts(self) -> PhoneFacts:
        android = collect_android_facts(self._device, self._run.config.cluster.interface)
        if not (android.unpacked and android.run_as.isdecimal()):
            return PhoneFacts(android)
        facts = termux.collect_termux_facts(self._device)
        return PhoneFacts(android, facts, lambda: self._accepts_login(facts))

    def _accepts_login(self, facts: TermuxFacts) -> bool:
        """Tries only if a login can succeed, because sshd penalizes failed logins."""
        run = self._run
        authorized = facts.texts.get("authorized_keys", "")
        if facts.version("openssh") is None or key_body(run.config.login_public) not in authorized:
            return False
        host_key = termux.read_host_key(self._device)
        return accepts_login(self._device, self._phone, run.config.cluster, run.state, host_key)

    def _target(self) -> AdbTarget:
        run = self._run
        return AdbTarget(
            device=self._device,
            collect_facts=self._collect_facts,
            on_wait=self._on_wait,
            wait_online=lambda seconds, away: run.monitor.wait_online(self._device.name, seconds, self._on_wait, away),
            repository=run.repositories.for_phone,
            mirror_port=run.repositories.port,
        )

    def _on_wait(self, reason: str) -> None:
        self._run.emit(Waiting(self._phone, reason))

    def _fail(self, error: str, remedy: str | None, seconds: float) -> None:
        self._add(StepResult(self._step, StepStatus.FAILED, seconds, error=error, remedy=remedy))

    def _add(self, result: StepResult) -> None:
        self.report = replace(self.report, steps=(*self.report.steps, result))
        self._run.emit(StepFinished(self._phone, result))
