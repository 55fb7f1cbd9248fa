"""Examination of all phones: connect, collect facts, search for missing phones, run the checks."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from orchestrator.fleet import Fleet, HostKeys, PhoneConnection, Timeouts
from orchestrator.fleet.context import FleetContext
from orchestrator.fleet.keys import load_private_key
from orchestrator.fleet.result import Outcome, Phase
from orchestrator.health.address_scan import SCAN_LIMIT_S, find_moved_phones
from orchestrator.health.checks import ALL_CHECKS
from orchestrator.health.checks.device import is_slow
from orchestrator.health.doctor_facts import DoctorFacts
from orchestrator.health.finding import Check
from orchestrator.health.observation import ClusterFacts, ContactResult, Observation, PreviousFacts
from orchestrator.health.report import DoctorReport, PhoneFinding
from orchestrator.health.scripts import SCRIPT_LIMIT_S, collect_doctor_facts
from orchestrator.inventory.model import Phone
from orchestrator.records.causes import Cause
from orchestrator.records.record import RunStore
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.files import write_json

TIMEOUTS: Final = Timeouts(tcp=5.0, banner=8.0, kex=8.0, auth=8.0, channel=8.0)
LIMIT_S: Final = 90.0  # connect (at most 37 s), collect facts (SCRIPT_LIMIT_S), scan addresses (SCAN_LIMIT_S)

assert LIMIT_S > 37.0 + SCRIPT_LIMIT_S + SCAN_LIMIT_S  # noqa: S101  (the documented limit covers all parts)

_ABSENT: Final = frozenset({ErrorCode.NO_ANSWER, ErrorCode.NO_ROUTE})
OnDone = Callable[[Outcome[Any]], None]


class DoctorContext(FleetContext):
    """Phones to examine."""

    @property
    def history_file(self) -> Path:
        return self.state.root / "doctor.json"

    def open_fleet(self) -> Fleet:
        key = self.cluster.ssh_key
        return Fleet(self.phones, self.state, self.network, key=key, timeouts=TIMEOUTS, workers=len(self.phones))


@dataclass
class _Collected:
    contacts: dict[Phone, ContactResult] = field(default_factory=dict)
    facts: dict[Phone, DoctorFacts] = field(default_factory=dict)
    neighbors: Mapping[Phone, Phone] = field(default_factory=dict)


def examine_all(context: DoctorContext, fleet: Fleet, on_done: OnDone | None = None) -> DoctorReport:
    started = time.monotonic()
    pins = HostKeys(context.state.known_hosts)
    collected = _Collected()
    _connect_all(fleet, collected)
    reachable = [phone for phone in context.phones if collected.contacts[phone].ok]
    collected.neighbors = ring_neighbors(reachable)
    _collect_facts(fleet, reachable, collected, on_done)
    _find_moved(context, pins, collected)
    _match_presented_keys(context, pins, collected)
    report = _report(context, collected, time.monotonic() - started)
    update_history(context.history_file, collected.facts, time.time())
    return report


def _connect_all(fleet: Fleet, collected: _Collected) -> None:
    for outcome in fleet.map(_no_task):
        collected.contacts[outcome.phone] = contact_result(outcome)


def _no_task(connection: PhoneConnection) -> None:
    """The connection alone is the test."""
    del connection


def contact_result(outcome: Outcome[Any]) -> ContactResult:
    if outcome.ok:
        return ContactResult()
    return ContactResult(
        phase=outcome.phase or Phase.EXEC,
        error=outcome.error or outcome.status.value,
        remedy=outcome.remedy or "",
        code=outcome.code,
        presented_key=getattr(outcome.raised, "shown", None),
    )


def ring_neighbors(reachable: Sequence[Phone]) -> dict[Phone, Phone]:
    """The next reachable phone in the ring, for each phone: so each phone is called by only one other."""
    if len(reachable) < 2:
        return {}
    return dict(zip(reachable, (*reachable[1:], reachable[0]), strict=True))


def _collect_facts(fleet: Fleet, reachable: Sequence[Phone], collected: _Collected, on_done: OnDone | None) -> None:
    def task(connection: PhoneConnection) -> DoctorFacts:
        neighbor = collected.neighbors.get(connection.phone)
        arguments = (str(neighbor.address), str(neighbor.ssh_port)) if neighbor else ()
        return collect_doctor_facts(connection, *arguments)

    for outcome in fleet.map(task, reachable, on_done=on_done):
        if outcome.value is None:
            collected.contacts[outcome.phone] = contact_result(outcome)
        else:
            collected.facts[outcome.phone] = outcome.value


def _find_moved(context: DoctorContext, pins: HostKeys, collected: _Collected) -> None:
    """Phones that do not answer may have another address."""
    absent = [phone for phone, contact in collected.contacts.items() if contact.code in _ABSENT]
    missing = {key: phone for phone in absent if (key := pins.pinned(phone))}
    if not missing or context.cluster.subnet.is_loopback:
        return
    login = load_private_key(context.cluster.ssh_key or context.state.host_key)
    for phone, address in find_moved_phones(missing, context.cluster, context.network, login).items():
        collected.contacts[phone] = replace(collected.contacts[phone], found_at=str(address))


def _match_presented_keys(context: DoctorContext, pins: HostKeys, collected: _Collected) -> None:
    """A phone that presents the key of another one is a copy of its Termux, or is that phone."""
    for phone, contact in collected.contacts.items():
        if contact.presented_key:
            same = [each for each in context.cluster if each != phone and pins.pinned(each) == contact.presented_key]
            reachable = any(collected.contacts[each].ok for each in same if each in collected.contacts)
            names = tuple(each.name for each in same)
            collected.contacts[phone] = replace(contact, same_key=names, same_key_reachable=reachable)


def _report(context: DoctorContext, collected: _Collected, seconds: float) -> DoctorReport:
    cluster_facts = _cluster_facts(context, collected)
    history = load_history(context.history_file)
    observations = [
        Observation(
            phone,
            collected.contacts[phone],
            collected.facts.get(phone),
            history.get(phone.name),
            cluster_facts,
            collected.neighbors.get(phone),
        )
        for phone in context.phones
    ]
    not_checked: tuple[str, ...] = ()
    if collected.facts and not collected.neighbors:
        not_checked = ("whether phones can reach each other: only one phone was examined",)
    findings = tuple(run_checks(observations, ALL_CHECKS))
    return DoctorReport(context.phones, findings, seconds, not_checked=not_checked)


def run_checks(observations: Iterable[Observation], checks: Iterable[Check]) -> Iterable[PhoneFinding]:
    selected = tuple(checks)
    for observation in observations:
        for check in selected:
            if finding := check.evaluate(observation):
                yield PhoneFinding(check, observation.phone, finding)


def _cluster_facts(context: DoctorContext, collected: _Collected) -> ClusterFacts:
    cluster = context.cluster
    refusing = [
        phone.switch for phone, contact in collected.contacts.items() if contact.code is ErrorCode.CONNECTION_REFUSED
    ]
    return ClusterFacts(
        interface=cluster.interface,
        subnet=None if cluster.subnet.is_loopback else cluster.subnet,
        versions=most_common_versions(collected.facts.values()),
        refusing=Counter(refusing),
        sizes=Counter(phone.switch for phone in context.phones),
        slow=frozenset(phone.name for phone, each in collected.facts.items() if is_slow(each)),
        killed=_killed_ranks(RunStore(context.state.runs)),
        host=str(cluster.host or "HOST"),
        now=time.time(),
    )


def most_common_versions(facts: Iterable[DoctorFacts]) -> dict[str, str]:
    """The version of each package on most phones."""
    counts: dict[str, Counter[str]] = {}
    for each in facts:
        for name, version in each.packages.items():
            counts.setdefault(name, Counter())[version] += 1
    return {name: versions.most_common(1)[0][0] for name, versions in counts.items()}


def _killed_ranks(store: RunStore) -> dict[str, str]:
    """Phone -> run, if the newest run ended because a rank was killed."""
    runs = store.all()
    newest = runs[-1] if runs else None
    failure = newest.failure if newest else None
    if newest is None or failure is None or failure.phone is None or failure.cause != Cause.RANK_KILLED:
        return {}
    return {failure.phone: newest.run_id}


def load_history(path: Path) -> dict[str, PreviousFacts]:
    """What the previous examination found, by phone; empty if the file cannot be read."""
    try:
        raw = json.loads(path.read_bytes())
        return {str(name): _previous_facts(entry) for name, entry in raw.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def update_history(path: Path, facts: Mapping[Phone, DoctorFacts], now: float) -> None:
    """Phones that did not answer keep their earlier entry."""
    history = load_history(path)
    history.update({phone.name: _summary(each, now) for phone, each in facts.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {name: asdict(each) for name, each in history.items()})


def _summary(facts: DoctorFacts, now: float) -> PreviousFacts:
    battery = facts.battery
    return PreviousFacts(
        when=now,
        sshd_supervisor=facts.sshd_supervisor,
        percentage=battery.percent if battery else None,
        plugged=battery.plugged if battery else None,
    )


def _previous_facts(entry: Mapping[str, Any]) -> PreviousFacts:
    return PreviousFacts(
        float(entry["when"]), entry.get("sshd_supervisor"), entry.get("percentage"), entry.get("plugged")
    )
