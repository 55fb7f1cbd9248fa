"""Which phones can take part in a run, and why the others cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import ClusterctlError
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.runs.health import PhoneHealth


@dataclass(frozen=True)
class Unfit:
    phone: Phone
    reason: str
    needs_provision: bool = False
    busy_with: str | None = None  # the run it takes part in already


@dataclass(frozen=True)
class Preflight:
    fit: tuple[Phone, ...]
    unfit: tuple[Unfit, ...]
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes free, by phone, where known

    def explain(self) -> list[str]:
        """One line a cause, phones folded, with the command that helps where there is one."""
        causes: dict[tuple[str, bool], list[Phone]] = {}
        for each in self.unfit:
            causes.setdefault((each.reason, each.needs_provision), []).append(each.phone)
        return [_cause(phones, reason, provision) for (reason, provision), phones in causes.items()]


class UnfitPhonesError(ClusterctlError):
    """Some phones cannot take part; the remedy leaves exactly them out."""

    def __init__(self, preflight: Preflight, command: str) -> None:
        self.preflight = preflight
        count = f"{len(preflight.unfit)} of {len(preflight.unfit) + len(preflight.fit)} phones cannot take part"
        message = "\n".join([f"{count}:", *(f"  {line}" for line in preflight.explain())])
        if preflight.fit:
            message += "\nTo go on without them, name the others:"
        super().__init__(message, remedy=_way_on(preflight, command))


def inspect(health: Sequence[PhoneHealth]) -> Preflight:
    unfit = tuple(filter(None, map(_unfit, health)))
    out = {each.phone.name for each in unfit}
    free = {each.phone.name: each.vitals.memory_free_mb for each in health if each.vitals}
    memory = {name: amount * 1024 * 1024 for name, amount in free.items() if amount is not None}
    return Preflight(tuple(each.phone for each in health if each.phone.name not in out), unfit, memory)


def _unfit(health: PhoneHealth) -> Unfit | None:
    if run := health.active_run:
        return Unfit(health.phone, f"takes part in {run.id}, which is {run.state}", busy_with=run.id)
    if not health.notes:
        return None
    return Unfit(health.phone, "; ".join(health.notes), needs_provision=health.needs_provision)


def _cause(phones: Sequence[Phone], reason: str, needs_provision: bool) -> str:  # noqa: FBT001 - one of two endings
    who = f"{phones[0].name} ({phones[0].where})" if len(phones) == 1 else f"{fold(phones)} ({len(phones)} phones)"
    limit = phones[0].name if len(phones) == 1 else fold(phones)
    return f"{who}: {reason}" + (f" -> clusterctl provision --limit {limit}" if needs_provision else "")


def _way_on(preflight: Preflight, command: str) -> str:
    if preflight.fit:
        return f"clusterctl {command} --limit {fold(preflight.fit)}"
    if provision := [each.phone for each in preflight.unfit if each.needs_provision]:
        return f"clusterctl provision --limit {fold(provision)}"
    busy = next((each.busy_with for each in preflight.unfit if each.busy_with), None)
    return f"clusterctl attach {busy}" if busy else "clusterctl status"
