"""Preflight of a run: which phones can take part, by their health and by the checks that need only session facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.errors import ClusterctlError
from orchestrator.health.checks import PREFLIGHT_CHECKS
from orchestrator.health.finding import Finding, Severity
from orchestrator.health.observation import ClusterFacts, ContactResult, Observation
from orchestrator.health.phone_health import PhoneHealth, PhoneState
from orchestrator.inventory import fold
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.records.record import RunRecord

MEGABYTE = 1_000_000  # phones report megabytes of 10^6 bytes
_PROVISION = "clusterctl provision --limit {phones}"
_DOCTOR = "clusterctl doctor --limit {phones}"


@dataclass(frozen=True)
class UnfitPhone:
    phone: Phone
    reason: str
    needs_provision: bool = False
    command: str = ""  # the remedy, with {phones} as a placeholder
    busy_with: str | None = None  # a run that it takes part in


@dataclass(frozen=True)
class Preflight:
    fit: tuple[Phone, ...]
    unfit: tuple[UnfitPhone, ...]
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes free, by phone, where known
    slow: tuple[UnfitPhone, ...] = ()  # can take part, but all phones would wait for them

    def explain(self) -> list[str]:
        """One line per cause, with phones folded and the command that helps, if there is one."""
        return _explain(self.unfit)

    def warnings(self) -> list[str]:
        return _explain(self.slow)


class UnfitPhonesError(ClusterctlError):
    """Some phones cannot take part; the remedy leaves them out."""

    def __init__(self, preflight: Preflight, command: str) -> None:
        self.preflight = preflight
        count = f"{len(preflight.unfit)} of {len(preflight.unfit) + len(preflight.fit)} phones cannot take part"
        message = "\n".join([f"{count}:", *(f"  {line}" for line in preflight.explain())])
        if preflight.fit:
            message += "\nTo continue without them, select the others:"
        super().__init__(message, remedy=_suggested_command(preflight, command))


def run_preflight(
    health: Sequence[PhoneHealth], cluster: Cluster | None = None, claims: Mapping[str, RunRecord] | None = None
) -> Preflight:
    """Without `cluster` the wired interface is not known, and not checked. `claims`: unfinished runs, by phone."""
    cluster_facts = _cluster_facts(cluster)
    findings = {each.phone: _findings(each, cluster_facts) for each in health}
    claimed = claims or {}
    unfit = tuple(filter(None, (_unfit(each, findings[each.phone], claimed.get(each.phone.name)) for each in health)))
    excluded = {each.phone.name for each in unfit}
    free = {each.phone.name: each.vitals.memory_free_mb for each in health if each.vitals}
    memory = {name: amount * MEGABYTE for name, amount in free.items() if amount is not None}
    fit = tuple(each.phone for each in health if each.phone.name not in excluded)
    slow = [_slow(phone, finding) for phone in fit for finding in findings[phone] if finding.severity is Severity.SLOWS]
    return Preflight(fit, unfit, memory, tuple(slow))


def mark_unfit(health: Sequence[PhoneHealth], cluster: Cluster | None = None) -> tuple[PhoneHealth, ...]:
    """A phone that `launch` would refuse is not ready, and its notes say why."""
    refused = {each.phone: each for each in run_preflight(health, cluster).unfit}
    return tuple(_mark_unfit(each, refused[each.phone]) if each.phone in refused else each for each in health)


def _mark_unfit(health: PhoneHealth, unfit: UnfitPhone) -> PhoneHealth:
    if health.state is not PhoneState.READY:
        return health
    notes = health.notes or (unfit.reason,)
    command = (unfit.command or _DOCTOR).format(phones=health.phone.name)
    return replace(health, state=PhoneState.UNFIT, notes=notes, remedy=health.remedy or command)


def _cluster_facts(cluster: Cluster | None) -> ClusterFacts:
    if cluster is None or cluster.subnet.is_loopback:
        return ClusterFacts()
    return ClusterFacts(interface=cluster.interface, subnet=cluster.subnet)


def _findings(health: PhoneHealth, cluster_facts: ClusterFacts) -> list[Finding]:
    session = health.vitals.session if health.vitals else None
    if session is None:
        return []
    observation = Observation(health.phone, ContactResult(), cluster=cluster_facts, session_facts=session)
    return [finding for check in PREFLIGHT_CHECKS if (finding := check.evaluate(observation))]


def _unfit(health: PhoneHealth, findings: Iterable[Finding], claim: RunRecord | None) -> UnfitPhone | None:
    if run := health.active_run:
        return UnfitPhone(health.phone, f"takes part in {run.id}, which is {run.state}", busy_with=run.id)
    if claim is not None:
        reason = f"belongs to {claim.run_id}, which is {claim.state}: another run would discard its state in memory"
        return UnfitPhone(health.phone, reason, command=f"clusterctl stop {claim.run_id}", busy_with=claim.run_id)
    if stopping := next((each for each in findings if each.severity is Severity.STOPS), None):
        # First: in a broken session the agent could not work, whatever it reported.
        return UnfitPhone(health.phone, stopping.evidence, command=stopping.command or _DOCTOR)
    if not health.notes:
        return None
    command = _PROVISION if health.needs_provision else ""
    return UnfitPhone(health.phone, "; ".join(health.notes), health.needs_provision, command)


def _slow(phone: Phone, finding: Finding) -> UnfitPhone:
    return UnfitPhone(phone, finding.evidence, command=finding.command or _DOCTOR)


def _explain(phones: Iterable[UnfitPhone]) -> list[str]:
    causes: dict[tuple[str, str], list[Phone]] = {}
    for each in phones:
        causes.setdefault((each.reason, each.command), []).append(each.phone)
    return [_cause(alike, reason, command) for (reason, command), alike in causes.items()]


def _cause(phones: Sequence[Phone], reason: str, command: str) -> str:
    who = f"{phones[0].name} ({phones[0].where})" if len(phones) == 1 else f"{fold(phones)} ({len(phones)} phones)"
    limit = phones[0].name if len(phones) == 1 else fold(phones)
    return f"{who}: {reason}" + (f" -> {command.format(phones=limit)}" if command else "")


def _suggested_command(preflight: Preflight, command: str) -> str:
    if preflight.fit:
        return f"clusterctl {command} --limit {fold(preflight.fit)}"
    if provision := [each.phone for each in preflight.unfit if each.needs_provision]:
        return f"clusterctl provision --limit {fold(provision)}"
    busy = next((each.busy_with for each in preflight.unfit if each.busy_with), None)
    return f"clusterctl attach {busy}" if busy else "clusterctl status"
