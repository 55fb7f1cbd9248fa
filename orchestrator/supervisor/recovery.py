"""What becomes of a run whose attempt ended: with which phones it goes on, or why it does not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.inventory.model import Phone
from orchestrator.records.record import RunRecord
from orchestrator.supervisor.diagnosis import Diagnosis
from orchestrator.supervisor.probe import Sight
from orchestrator.text import count_of

FRUITLESS = 4  # attempts in a row without a step done
STRIKES = 2  # of one phone in a row without a step done: then it is left out
PROBE_S = 20.0  # between two looks for phones that were lost; longer for those that were lost again and again
LONGEST_PROBE_S = 600.0


@dataclass
class Memory:
    """What was seen of the run's troubles so far."""

    fruitless: int = 0
    strikes: dict[str, int] = field(default_factory=dict)  # since the last step that was done
    losses: dict[str, int] = field(default_factory=dict)  # in all

    def stepped(self) -> None:
        self.fruitless = 0
        self.strikes.clear()

    def failed(self, diagnosis: Diagnosis) -> None:
        self.fruitless += 1
        if diagnosis.phone is not None:
            name = diagnosis.phone.phone
            self.strikes[name] = self.strikes.get(name, 0) + 1
            self.losses[name] = self.losses.get(name, 0) + 1

    def refused(self, names: Iterable[str]) -> None:
        """These did not take what an attempt needs."""
        self.strikes.update({name: self.strikes.get(name, 0) + 1 for name in names})

    def doubts(self, phones: Iterable[Phone]) -> bool:
        """Whether what lies on them should be looked at: one of them failed, or nobody here saw how the last attempt
        ended."""
        return not self.losses or any(phone.name in self.strikes for phone in phones)

    def probe_after_s(self, name: str) -> float:
        """Before a phone is taken in again."""
        return float(min(LONGEST_PROBE_S, PROBE_S * 2 ** max(0, self.losses.get(name, 0) - 1)))


@dataclass(frozen=True)
class GiveUp:
    reason: str  # beside the trouble itself; empty where that says it all
    may_go_on: bool = False  # once phones are back: what they hold is kept

    def after(self, trouble: Diagnosis) -> Diagnosis:
        """With what it came from, which tells what to do."""
        return replace(trouble, message=f"{trouble.message}; {self.reason}") if self.reason else trouble


def hopeless(record: RunRecord, memory: Memory, diagnosis: Diagnosis) -> GiveUp | None:
    """Why there is no next attempt, whatever phones there are."""
    if diagnosis.hopeless:
        return GiveUp("")
    if record.restarts >= record.max_restarts:
        often = f"it was started again {count_of(record.restarts, 'time')} (--max-restarts {record.max_restarts})"
        return GiveUp(often if record.max_restarts else "")
    if memory.fruitless >= FRUITLESS:
        return GiveUp(f"no step was done in {FRUITLESS} attempts")
    return None


def choose(record: RunRecord, sights: Sequence[Sight], memory: Memory) -> tuple[Phone, ...] | GiveUp:
    """Those it was launched with, where they can; spares for the others; in ring order."""
    able = [sight.phone for sight in sights if not sight.unfit and memory.strikes.get(sight.phone.name, 0) < STRIKES]
    own = [phone for phone in able if phone.name in record.wanted]
    spares = [phone for phone in able if phone.name in record.spares]
    chosen = {phone.name for phone in (*own, *spares[: max(0, len(record.wanted) - len(own))])}
    if len(chosen) < record.min_phones:
        left = f"{count_of(len(chosen), 'phone')} of {len(record.wanted)} left, {record.min_phones} are the least"
        later = f"clusterctl attach {record.run_id} goes on from there once they are back"
        return GiveUp(f"{left} (--min-phones); {later}", may_go_on=True)
    return tuple(sight.phone for sight in sights if sight.phone.name in chosen)
