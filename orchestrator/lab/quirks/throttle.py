"""Slow down a phone: stop and resume all its processes in a duty cycle.

Signals are used instead of a control group: they need no privileges, leave nothing behind on the host, and also work in
loopback mode.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

from orchestrator.lab.processes import descendants, kill

_PERIOD_S = 0.05  # of throttling
_DOZE_PERIOD_S, _DOZE_AWAKE_S = 3.0, 0.8  # period of dozing, and how long the phone is awake in each
# After SIGCONT the kernel makes a process call restart_syscall, which the sandbox of sshd forbids before login.
_NEVER_STOPPED = "sshd"
_MARGIN_S = 0.0002  # wake up just after an edge, never just before it


@dataclass
class ProcessThrottle:
    speed: float = 1.0
    doze: bool = False
    _stopped: set[int] = field(default_factory=set)

    def set(self, *, speed: float, doze: bool) -> None:
        self.speed, self.doze = speed, doze

    def tick(self, now: float) -> float | None:
        """Stop or resume the processes. Return the seconds until the next call is due, or None if not throttled."""
        cycles = self._duty_cycles
        if all(now % period < awake for period, awake in cycles):
            self._resume_all()
        else:
            self._stop_all()
        edges = [awake - now % period if now % period < awake else period - now % period for period, awake in cycles]
        return min(*edges, _PERIOD_S) + _MARGIN_S if cycles else None  # no later than this, for new processes

    @property
    def _duty_cycles(self) -> list[tuple[float, float]]:
        """Periods, and how long the processes run in each."""
        slow = [(_PERIOD_S, self.speed * _PERIOD_S)] if self.speed < 1 else []
        return [*slow, (_DOZE_PERIOD_S, _DOZE_AWAKE_S)] if self.doze else slow

    def _stop_all(self) -> None:
        for process in descendants(os.getpid()):
            if process.pid not in self._stopped and not process.name.startswith(_NEVER_STOPPED):
                kill(process.pid, signal.SIGSTOP)
                self._stopped.add(process.pid)

    def _resume_all(self) -> None:
        for pid in self._stopped:
            kill(pid, signal.SIGCONT)
        self._stopped.clear()
