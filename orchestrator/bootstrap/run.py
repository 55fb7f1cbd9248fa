"""Several phones at once, each through all steps: looked at, planned, done, verified; then written down.

A phone that fails stops; the others go on. Nothing is remembered instead of being looked at: a bootstrap that was
interrupted, by whatever, is simply run again.
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

from orchestrator.bootstrap import inspect, login, termux
from orchestrator.bootstrap.adb import Adb, AdbError
from orchestrator.bootstrap.apk import read_apks
from orchestrator.bootstrap.assign import Assigned, Handset, assign, chosen, parse_pairs
from orchestrator.bootstrap.attachment import Bus
from orchestrator.bootstrap.events import Doing, Event, Note, OnEvent, PhoneDone, Started, StepDone, Waiting
from orchestrator.bootstrap.facts import look
from orchestrator.bootstrap.journal import Entry, Journal, now
from orchestrator.bootstrap.report import LAST_STEP, PhoneReport, Report
from orchestrator.bootstrap.repositories import Repositories, served
from orchestrator.bootstrap.steps import STEPS
from orchestrator.bootstrap.steps.step import Action, Known, Site, Step, Want
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet import FleetInterrupted, HostKeys
from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.parallel import map_phones
from orchestrator.fleet.result import Outcome, Status
from orchestrator.inventory import remember_failed
from orchestrator.inventory.edit import PhoneIdentity, record_identity
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState, cache_dir
from orchestrator.provision.facts import Facts
from orchestrator.provision.gather_desired import PackageSource, default_upstream, host_key
from orchestrator.provision.report import StepResult, StepStatus
from orchestrator.provision.resources import package_list
from orchestrator.provision.steps.keys import key_body
from orchestrator.provision.termux.upstream import Upstream
from phone_agent.contract.errors import ErrorCode

_AT_ONCE: Final = 32
_TO_BE_PROVED: Final = ("files", "opened")  # by a restart, even where an sshd answers already
_EFFECT_SECONDS: Final = 10.0  # Android takes some settings at its leisure


@dataclass(frozen=True)
class Options:
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

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


def bootstrap(
    cluster: Cluster, phones: Sequence[Phone], state: ClusterState, options: Options, on_event: OnEvent
) -> Report:
    """Raises UsageError before any phone is touched; what fails on a phone is in the report."""
    if cluster.lab is not None:
        raise UsageError("virtual phones have no USB port", remedy="name the inventory of your rack: -i inventory.yaml")
    apks = read_apks(options.apks)
    upstream = Upstream(options.upstream or default_upstream(cluster, package_list()))
    adb = Adb.find()
    assigned = _assigned(adb, cluster, phones, options)
    if not options.dry_run:
        _require_writable(cluster.source)
    want = Want(cluster, apks, host_key(cluster, state), options.ntp or cluster.host)
    source = PackageSource(
        upstream,
        package_list(),
        cache_dir(),
        lambda message: on_event(Note(message)),
        offline=options.offline,
        dry_run=False,
    )
    with served(source) as repositories:
        return _Run(adb, assigned, want, state, options, repositories, on_event).all()


def _assigned(adb: Adb, cluster: Cluster, phones: Sequence[Phone], options: Options) -> tuple[Assigned, ...]:
    pairs = parse_pairs(options.pairs, cluster)
    handsets = [Handset(each.name, _serial(adb, each.name, online=each.online)) for each in adb.attached()]
    return assign(chosen(handsets, options.serials), cluster, phones, pairs, fill_free=options.fill_free)


def _serial(adb: Adb, name: str, *, online: bool) -> str:
    """On USB adb's name is the serial number; elsewhere the phone has to be asked."""
    if ":" not in name or not online:
        return name
    told = adb.device(name).shell("getprop", "ro.serialno").stdout.strip()
    return told if told.isascii() and told.isprintable() and told else name


def _require_writable(inventory: Path) -> None:
    if not os.access(inventory, os.W_OK) or not os.access(inventory.absolute().parent, os.W_OK):
        raise UsageError(
            f"{inventory}: cannot be written, and serial numbers and host keys belong into it",
            remedy=f"chmod u+w {inventory}, or copy it to a directory of yours",
        )


class _Run:
    def __init__(  # noqa: PLR0917  (made in one place, from all that was prepared there)
        self,
        adb: Adb,
        assigned: Sequence[Assigned],
        want: Want,
        state: ClusterState,
        options: Options,
        repositories: Repositories,
        on_event: OnEvent,
    ) -> None:
        self.adb = adb
        self.want = want
        self.state = state
        self.options = options
        self.repositories = repositories
        self.bus = Bus(adb)
        self.journal = Journal(state)
        self._assigned = {each.phone: each for each in assigned}
        self._on_event = on_event
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        with self._lock:
            self._on_event(event)

    def all(self) -> Report:
        phones = tuple(self._assigned)
        workers = {phone: _Worker(self, each) for phone, each in self._assigned.items()}

        def work(phone: Phone) -> Outcome[None]:
            started = time.monotonic()
            workers[phone].work()
            return Outcome(phone, Status.OK, time.monotonic() - started)

        self.emit(Started(phones))
        try:
            map_phones(work, phones, _AT_ONCE, lambda outcome: self.emit(PhoneDone(outcome.phone)))
        except FleetInterrupted:
            raise BootstrapInterrupted(self._report(workers.values())) from None
        report = self._report(workers.values())
        if not self.options.dry_run:
            remember_failed(self.state, (each.phone for each in report.failed))
        return report

    def _report(self, workers: Iterable[_Worker]) -> Report:
        reports = tuple(worker.report for worker in workers)
        return Report(reports, self.journal.to_come(self.want.cluster), dry_run=self.options.dry_run)


class _Worker:
    """One phone's part."""

    def __init__(self, run: _Run, assigned: Assigned) -> None:
        self._run = run
        self._phone = assigned.phone
        self._device = run.adb.device(assigned.handset.name)
        self._step = "attach"
        self.report = PhoneReport(assigned.phone, assigned.handset.name, assigned.handset.serial)

    def work(self) -> None:
        """Whatever goes wrong is in the report."""
        started = time.monotonic()
        try:
            self._attach()
            known = self._inspect()
            if self._run.options.dry_run:
                self._plan(known)
                return
            with self._run.journal.entry(known.seen.serial, self._phone) as entry:
                self._set_up(known, entry)
        except ClusterctlError as error:
            self._fail(error.message, error.remedy, time.monotonic() - started)
        except OSError as error:  # of this computer: a full disk, no more file descriptors
            self._fail(f"on this computer: {error}", None, time.monotonic() - started)

    def _attach(self) -> None:
        patience = 0.0 if self._run.options.dry_run else self._run.options.wait
        self._run.bus.wait_online(self._device.name, patience, self._waiting)

    def _inspect(self) -> Known:
        """Waits for what a person has to do at the phone."""
        self._step = "inspect"
        known = self._look()
        deadline = time.monotonic() + (0.0 if self._run.options.dry_run else self._run.options.wait)
        while task := inspect.for_hands(known.seen):
            if time.monotonic() > deadline:
                raise AdbError("it waits for somebody", code=ErrorCode.NEEDS_A_PERSON, remedy=task)
            self._waiting(task)
            time.sleep(0.5)
            known = self._look()
        inspect.refuse(known.seen, self._run.want)
        seen = known.seen
        self.report = replace(
            self.report, serial=seen.serial, told=seen.told, mac=seen.mac, warnings=inspect.warnings(seen)
        )
        return known

    def _plan(self, known: Known) -> None:
        actions: list[Action] = []
        for step in STEPS:
            planned = step.plan(known, self._run.want)
            actions += planned
            self._done(step.name, StepStatus.PLANNED if planned else StepStatus.OK, planned)
        written = f"write serial number and host key of {self._phone.name} into {self._run.want.cluster.source}"
        status = StepStatus.OK if self._phone.serial and self._phone.host_key else StepStatus.PLANNED
        noted = () if status is StepStatus.OK else (Action(written, ()),)
        actions += noted
        self._done(LAST_STEP, status, noted)
        self.report = replace(self.report, actions=tuple(actions))

    def _set_up(self, known: Known, entry: Entry) -> None:
        entry.phone, entry.told, entry.finished = self._phone.name, known.seen.told, None
        entry.apks = {apk.package: apk.sha256 for apk in self._run.want.apks}
        for step in STEPS:
            if actions := step.plan(known, self._run.want):
                known = self._apply(step, known, actions)
                if step.name in _TO_BE_PROVED:
                    known = Known(known.seen, known.facts)
                entry.steps[step.name] = now()
                self._run.journal.save(entry)
            else:
                self._done(step.name, StepStatus.OK)
        entry.host_key = self._record(known)
        entry.finished = now()
        self._run.journal.save(entry)

    def _apply(self, step: Step, known: Known, actions: tuple[Action, ...]) -> Known:
        """What is known afterwards; raises AdbError unless the phone itself says that it is done."""
        self._step = step.name
        self._run.emit(Doing(self._phone, step.name))
        started = time.monotonic()
        step.apply(self._site(), known, actions)
        left = actions
        while left:
            known = self._look()
            left = step.plan(known, self._run.want)
            if left and time.monotonic() - started > _EFFECT_SECONDS:
                raise AdbError(
                    f"without effect: {'; '.join(action.what for action in left)}", code=ErrorCode.COMMAND_FAILED
                )
        self._done(step.name, StepStatus.CHANGED, actions, time.monotonic() - started)
        return known

    def _record(self, known: Known) -> str:
        self._step = LAST_STEP
        key = termux.host_key(self._device)
        changed = self._pin(HostKey(*key.split()))
        changed |= record_identity(
            self._run.want.cluster.source, self._phone, PhoneIdentity(known.seen.serial, known.seen.mac, key)
        )
        self.report = replace(self.report, host_key=key)
        told = Action(f"write serial number and host key of {self._phone.name} into the inventory", ())
        self._done(LAST_STEP, StepStatus.CHANGED if changed else StepStatus.OK, (told,) if changed else ())
        return key

    def _pin(self, key: HostKey) -> bool:
        """It was read over the cable: it counts more than one met over a network."""
        pins = HostKeys(self._run.state.known_hosts)
        unlisted = replace(self._phone, host_key=None)
        if pins.pinned(unlisted) == key:
            return False
        pins.forget([unlisted])
        pins.accept(unlisted, key)
        return True

    def _look(self) -> Known:
        seen = look(self._device, self._run.want.cluster.interface)
        if not (seen.unpacked and seen.run_as.isdecimal()):
            return Known(seen)
        facts = termux.facts(self._device)
        return Known(seen, facts, lambda: self._answers(facts))

    def _answers(self, facts: Facts) -> bool:
        """Not even asked where it cannot: sshd counts logins that fail."""
        run = self._run
        authorized = facts.texts.get("authorized_keys", "")
        if facts.version("openssh") is None or key_body(run.want.host_public) not in authorized:
            return False
        return login.answers(self._device, self._phone, run.want.cluster, run.state, termux.host_key(self._device))

    def _site(self) -> Site:
        run = self._run
        return Site(
            device=self._device,
            phone=self._phone,
            want=run.want,
            look=self._look,
            waiting=self._waiting,
            wait_online=lambda seconds, away: run.bus.wait_online(self._device.name, seconds, self._waiting, away),
            repository=run.repositories.of,
            mirror_port=run.repositories.port,
        )

    def _waiting(self, what: str) -> None:
        self._run.emit(Waiting(self._phone, what))

    def _done(self, step: str, status: StepStatus, actions: Sequence[Action] = (), seconds: float = 0.0) -> None:
        self._add(StepResult(step, status, seconds, tuple(action.what for action in actions)))

    def _fail(self, error: str, remedy: str | None, seconds: float) -> None:
        self._add(StepResult(self._step, StepStatus.FAILED, seconds, error=error, remedy=remedy))

    def _add(self, result: StepResult) -> None:
        self.report = replace(self.report, steps=(*self.report.steps, result))
        self._run.emit(StepDone(self._phone, result))
