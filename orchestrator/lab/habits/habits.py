"""All habits of one phone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.habits import sessions
from orchestrator.lab.termux import HABITS, told


@dataclass
class Habits:
    paths: PhonePaths

    def apply(self, key: str) -> None:
        """Makes the phone as the scenario says."""
        if act := self._acts.get(key):
            act()

    def apply_all(self) -> None:
        """For a phone that starts: whatever is not as on a healthy one."""
        for key in self._acts:
            if self.is_unhealthy(key):
                self.apply(key)

    def is_unhealthy(self, key: str) -> bool:
        return told(self.paths.scenario, key) != HABITS[key].default

    @property
    def _acts(self) -> Mapping[str, Callable[[], None]]:
        return {
            "tmpdir": partial(sessions.allow_temporary_files, self.paths),
        }
