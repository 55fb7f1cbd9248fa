"""Looks, beside the watching, for phones that a run has lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.inventory.model import Phone
from orchestrator.supervisor.probe import Sight, end
from orchestrator.supervisor.recovery import Memory

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet


class Returns:
    """One look at a time, in a thread of its own: a phone that is off takes seconds to say nothing."""

    def __init__(self, fleet: Fleet, run_id: str, missing: Sequence[Phone], memory: Memory) -> None:
        self._fleet, self._run_id, self._memory = fleet, run_id, memory
        now = time.monotonic()
        self._due = {phone: now + memory.probe_after_s(phone.name) for phone in missing}
        self._looking: threading.Thread | None = None
        self._found: tuple[Sight, ...] = ()

    def back(self) -> list[Phone]:
        """Those that were found fit since the last question; starts the next look when it is time."""
        if self._looking is not None and self._looking.is_alive():
            return []
        found, self._found = [sight.phone for sight in self._found if not sight.unfit], ()
        now = time.monotonic()
        due = [phone for phone, when in self._due.items() if when <= now]
        if due and not found:
            self._due.update({phone: now + self._memory.probe_after_s(phone.name) for phone in due})
            self._looking = threading.Thread(target=self._look, args=(due,), daemon=True)
            self._looking.start()
        return found

    def _look(self, phones: Sequence[Phone]) -> None:
        """What a phone still does of an attempt that went on without it ends here."""
        self._found = end(self._fleet, self._run_id, phones)
