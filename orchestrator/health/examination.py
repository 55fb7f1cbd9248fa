"""All phones, looked at once: connect, ask, look for those who are missing, judge."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from orchestrator.fleet import Fleet, HostKeys, PhoneConnection, Timeouts
from orchestrator.fleet.context import FleetContext
from orchestrator.fleet.keys import load_private_key
from orchestrator.fleet.result import Outcome, Phase
from orchestrator.health import history
from orchestrator.health.address_scan import SWEEP_LIMIT_S, find_missing
from orchestrator.health.checks import ALL
from orchestrator.health.checks.device import is_late
from orchestrator.health.doctor_facts import Facts
from orchestrator.health.finding import Check
from orchestrator.health.observation import Common, Contact, Seen
from orchestrator.health.report import Found, Report
from orchestrator.health.scripts import SCRIPT_LIMIT_S, examine
from orchestrator.inventory.model import Phone
from orchestrator.records.causes import Cause
from orchestrator.records.record import RunStore
from phone_agent.contract.errors import ErrorCode

TIMEOUTS: Final = Timeouts(tcp=5.0, banner=8.0, kex=8.0, auth=8.0, channel=8.0)
LIMIT_S: Final = 90.0  # connecting (at most 37), asking (SCRIPT_LIMIT_S), looking around (SWEEP_LIMIT_S)
assert LIMIT_S > 37.0 + SCRIPT_LIMIT_S + SWEEP_LIMIT_S  # noqa: S101  (what is promised is the sum of what is allowed)

_ABSENT: Final = frozenset({ErrorCode.NO_ANSWER, ErrorCode.NO_ROUTE})
OnDone = Callable[[Outcome[Any]], None]


class Ward(FleetContext):
    """Phones to examine."""

    @property
    def memory(self) -> Path:
        return self.state.root / "doctor.json"

    def fleet(self) -> Fleet:
        key = self.cluster.ssh_key
        return Fleet(self.phones, self.state, self.network, key=key, timeouts=TIMEOUTS, workers=len(self.phones))


@dataclass
class _Round:
    contacts: dict[Phone, Contact] = field(default_factory=dict)
    facts: dict[Phone, Facts] = field(default_factory=dict)
    neighbours: Mapping[Phone, Phone] = field(default_factory=dict)


def examine_all(ward: Ward, fleet: Fleet, on_done: OnDone | None = None) -> Report:
    started = time.monotonic()
    hosts = HostKeys(ward.state.known_hosts)
    found = _Round()
    _reach(fleet, found)
    there = [phone for phone in ward.phones if found.contacts[phone].ok]
    found.neighbours = neighbours(there)
    _ask(fleet, there, found, on_done)
    _look_around(ward, hosts, found)
    _compare_keys(ward, hosts, found)
    report = _judge(ward, found, time.monotonic() - started)
    history.remember(ward.memory, found.facts, time.time())
    return report


def _reach(fleet: Fleet, found: _Round) -> None:
    for outcome in fleet.map(_be_there):
        found.contacts[outcome.phone] = contact_of(outcome)


def _be_there(connection: PhoneConnection) -> None:
    """A connection stands: all that is asked at first."""
    del connection


def contact_of(outcome: Outcome[Any]) -> Contact:
    if outcome.ok:
        return Contact()
    return Contact(
        phase=outcome.phase or Phase.EXEC,
        error=outcome.error or outcome.status.value,
        remedy=outcome.remedy or "",
        code=outcome.code,
        shown=getattr(outcome.raised, "shown", None),
    )


def neighbours(there: Sequence[Phone]) -> dict[Phone, Phone]:
    """Whom each phone should reach: the next one of the ring that is there. Each is called by one other only."""
    if len(there) < 2:
        return {}
    return dict(zip(there, (*there[1:], there[0]), strict=True))


def _ask(fleet: Fleet, there: Sequence[Phone], found: _Round, on_done: OnDone | None) -> None:
    def task(connection: PhoneConnection) -> Facts:
        neighbour = found.neighbours.get(connection.phone)
        return examine(connection, *((str(neighbour.address), str(neighbour.ssh_port)) if neighbour else ()))

    for outcome in fleet.map(task, there, on_done=on_done):
        if outcome.value is None:
            found.contacts[outcome.phone] = contact_of(outcome)
        else:
            found.facts[outcome.phone] = outcome.value


def _look_around(ward: Ward, hosts: HostKeys, found: _Round) -> None:
    """Phones that are absent may be at another address."""
    absent = [phone for phone, contact in found.contacts.items() if contact.code in _ABSENT]
    missing = {key: phone for phone in absent if (key := hosts.pinned(phone))}
    if not missing or ward.cluster.subnet.is_loopback:
        return
    login = load_private_key(ward.cluster.ssh_key or ward.state.host_key)
    for phone, address in find_missing(missing, ward.cluster, ward.network, login).items():
        found.contacts[phone] = replace(found.contacts[phone], elsewhere=str(address))


def _compare_keys(ward: Ward, hosts: HostKeys, found: _Round) -> None:
    """Who showed another phone's key: a copy of that phone's Termux, or that phone itself."""
    for phone, contact in found.contacts.items():
        if contact.shown:
            like = [each for each in ward.cluster if each != phone and hosts.pinned(each) == contact.shown]
            there = any(found.contacts[each].ok for each in like if each in found.contacts)
            names = tuple(each.name for each in like)
            found.contacts[phone] = replace(contact, like=names, like_there=there)


def _judge(ward: Ward, found: _Round, seconds: float) -> Report:
    common = _common(ward, found)
    earlier = history.recall(ward.memory)
    seen = [
        Seen(
            phone,
            found.contacts[phone],
            found.facts.get(phone),
            earlier.get(phone.name),
            common,
            found.neighbours.get(phone),
        )
        for phone in ward.phones
    ]
    unasked = (
        () if found.neighbours or not found.facts else ("whether phones reach each other: only one was looked at",)
    )
    return Report(ward.phones, tuple(judge(seen, ALL)), seconds, unasked=unasked)


def judge(seen: Iterable[Seen], checks: Iterable[Check]) -> Iterable[Found]:
    chosen = tuple(checks)
    for each in seen:
        for check in chosen:
            if finding := check.judge(each):
                yield Found(check, each.phone, finding)


def _common(ward: Ward, found: _Round) -> Common:
    cluster = ward.cluster
    refusing = [
        phone.switch for phone, contact in found.contacts.items() if contact.code is ErrorCode.CONNECTION_REFUSED
    ]
    return Common(
        interface=cluster.interface,
        subnet=None if cluster.subnet.is_loopback else cluster.subnet,
        versions=usual_versions(found.facts.values()),
        refusing=Counter(refusing),
        sizes=Counter(phone.switch for phone in ward.phones),
        slow=frozenset(phone.name for phone, each in found.facts.items() if is_late(each)),
        killed=_killed(RunStore(ward.state.runs)),
        host=str(cluster.host or "HOST"),
        now=time.time(),
    )


def usual_versions(facts: Iterable[Facts]) -> dict[str, str]:
    """Of each package the version that most phones have."""
    counts: dict[str, Counter[str]] = {}
    for each in facts:
        for name, version in each.packages.items():
            counts.setdefault(name, Counter())[version] += 1
    return {name: versions.most_common(1)[0][0] for name, versions in counts.items()}


def _killed(store: RunStore) -> dict[str, str]:
    """Phone -> run, where the newest run ended because a rank was killed."""
    runs = store.all()
    newest = runs[-1] if runs else None
    if newest is None or newest.blamed is None or newest.cause != Cause.RANK_KILLED:
        return {}
    return {newest.blamed: newest.run_id}
