"""A phone that computes slowly or naps: all its processes are held and let go in turn.

Signals rather than a control group: they need no privileges on this computer, leave nothing behind on it, and a
phone without namespaces can be slowed down as well.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

from orchestrator.lab.processes import descendants, kill

_BEAT_S = 0.05  # one turn of holding and letting go
_NAP_S, _AWAKE_S = 3.0, 0.8  # a nap with what follows it; how long the phone is awake between two
_NEVER_HELD = "sshd"  # before a login it may not call restart_syscall, which the kernel does for it after SIGCONT
_MARGIN_S = 0.0002  # past the moment, never just before it


@dataclass
class Pacer:
    share: float = 1.0
    naps: bool = False
    _held: set[int] = field(default_factory=set)

    def set(self, *, share: float, naps: bool) -> None:
        self.share, self.naps = share, naps

    def tick(self, now: float) -> float | None:
        """Holds or lets go as the time of day has it. Returns the seconds after which to come again, if at all."""
        turns = self._turns
        if all(now % period < awake for period, awake in turns):
            self._let_go()
        else:
            self._hold()
        edges = [awake - now % period if now % period < awake else period - now % period for period, awake in turns]
        return min(*edges, _BEAT_S) + _MARGIN_S if turns else None  # soon, for processes born in the meantime

    @property
    def _turns(self) -> list[tuple[float, float]]:
        """Periods, and how long of each the processes may run."""
        slow = [(_BEAT_S, self.share * _BEAT_S)] if self.share < 1 else []
        return [*slow, (_NAP_S, _AWAKE_S)] if self.naps else slow

    def _hold(self) -> None:
        for process in descendants(os.getpid()):
            if process.pid not in self._held and not process.name.startswith(_NEVER_HELD):
                kill(process.pid, signal.SIGSTOP)
                self._held.add(process.pid)

    def _let_go(self) -> None:
        for pid in self._held:
            kill(pid, signal.SIGCONT)
        self._held.clear()
