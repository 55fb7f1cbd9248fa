"""Which phones can take part in a run, and why the others cannot: their health, and the doctor's cheaper checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import ClusterctlError
from orchestrator.health.checks import BEFORE_RUNS
from orchestrator.health.finding import Finding, Severity
from orchestrator.health.observation import Common, Contact, Seen
from orchestrator.health.phone_health import PhoneHealth
from orchestrator.inventory import fold
from orchestrator.inventory.model import Cluster, Phone

MEGABYTE = 1_000_000  # as phones tell what they have, and plan with it
_SET_UP = "clusterctl provision --limit {phones}"
_EXAMINE = "clusterctl doctor --limit {phones}"


@dataclass(frozen=True)
class Unfit:
    phone: Phone
    reason: str
    needs_provision: bool = False
    command: str = ""  # that helps, with {phones} for whom
    busy_with: str | None = None  # the run it takes part in already


@dataclass(frozen=True)
class Preflight:
    fit: tuple[Phone, ...]
    unfit: tuple[Unfit, ...]
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes free, by phone, where known
    slow: tuple[Unfit, ...] = ()  # can take part, and all would wait for them

    def explain(self) -> list[str]:
        """One line a cause, phones folded, with the command that helps where there is one."""
        return _explained(self.unfit)

    def cautions(self) -> list[str]:
        return _explained(self.slow)


class UnfitPhonesError(ClusterctlError):
    """Some phones cannot take part; the remedy leaves exactly them out."""

    def __init__(self, preflight: Preflight, command: str) -> None:
        self.preflight = preflight
        count = f"{len(preflight.unfit)} of {len(preflight.unfit) + len(preflight.fit)} phones cannot take part"
        message = "\n".join([f"{count}:", *(f"  {line}" for line in preflight.explain())])
        if preflight.fit:
            message += "\nTo go on without them, name the others:"
        super().__init__(message, remedy=_way_on(preflight, command))


def inspect(health: Sequence[PhoneHealth], cluster: Cluster | None = None) -> Preflight:
    """`cluster` tells which interface is the wired one; without it that is not judged."""
    common = _common(cluster)
    found = {each.phone: _findings(each, common) for each in health}
    unfit = tuple(filter(None, (_unfit(each, found[each.phone]) for each in health)))
    out = {each.phone.name for each in unfit}
    free = {each.phone.name: each.vitals.memory_free_mb for each in health if each.vitals}
    memory = {name: amount * MEGABYTE for name, amount in free.items() if amount is not None}
    fit = tuple(each.phone for each in health if each.phone.name not in out)
    slow = [_slow(phone, finding) for phone in fit for finding in found[phone] if finding.severity is Severity.SLOWS]
    return Preflight(fit, unfit, memory, tuple(slow))


def _common(cluster: Cluster | None) -> Common:
    if cluster is None or cluster.subnet.is_loopback:
        return Common()
    return Common(interface=cluster.interface, subnet=cluster.subnet)


def _findings(health: PhoneHealth, common: Common) -> list[Finding]:
    session = health.vitals.session if health.vitals else None
    if session is None:
        return []
    seen = Seen(health.phone, Contact(), common=common, known_session=session)
    return [finding for check in BEFORE_RUNS if (finding := check.judge(seen))]


def _unfit(health: PhoneHealth, findings: Iterable[Finding]) -> Unfit | None:
    if run := health.active_run:
        return Unfit(health.phone, f"takes part in {run.id}, which is {run.state}", busy_with=run.id)
    if stopping := next((each for each in findings if each.severity is Severity.STOPS), None):
        # Before what the agent said: in a broken session it had no chance.
        return Unfit(health.phone, stopping.evidence, command=stopping.command or _EXAMINE)
    if not health.notes:
        return None
    command = _SET_UP if health.needs_provision else ""
    return Unfit(health.phone, "; ".join(health.notes), health.needs_provision, command)


def _slow(phone: Phone, finding: Finding) -> Unfit:
    return Unfit(phone, finding.evidence, command=finding.command or _EXAMINE)


def _explained(phones: Iterable[Unfit]) -> list[str]:
    causes: dict[tuple[str, str], list[Phone]] = {}
    for each in phones:
        causes.setdefault((each.reason, each.command), []).append(each.phone)
    return [_cause(alike, reason, command) for (reason, command), alike in causes.items()]


def _cause(phones: Sequence[Phone], reason: str, command: str) -> str:
    who = f"{phones[0].name} ({phones[0].where})" if len(phones) == 1 else f"{fold(phones)} ({len(phones)} phones)"
    limit = phones[0].name if len(phones) == 1 else fold(phones)
    return f"{who}: {reason}" + (f" -> {command.format(phones=limit)}" if command else "")


def _way_on(preflight: Preflight, command: str) -> str:
    if preflight.fit:
        return f"clusterctl {command} --limit {fold(preflight.fit)}"
    if provision := [each.phone for each in preflight.unfit if each.needs_provision]:
        return f"clusterctl provision --limit {fold(provision)}"
    busy = next((each.busy_with for each in preflight.unfit if each.busy_with), None)
    return f"clusterctl attach {busy}" if busy else "clusterctl status"
