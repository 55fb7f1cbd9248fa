"""All habits of one phone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.quirks import cores, masks, sessions
from orchestrator.lab.quirks.phantom import PhantomKiller
from orchestrator.lab.quirks.slowdown import Pacer
from orchestrator.lab.seccomp import Refusals
from orchestrator.lab.termux import HABITS, told


@dataclass
class Habits:
    paths: PhonePaths
    cores: cores.Cores
    phantom: PhantomKiller
    has_namespaces: bool
    _pacer: Pacer = field(default_factory=Pacer)

    def start(self) -> None:
        """For a phone that starts: its cores, and whatever is not as on a healthy one."""
        if self.has_namespaces:
            cores.cover()
            self._show_cores()
        for key in self._acts:
            if self.is_unhealthy(key):
                self.apply(key)

    def apply(self, key: str) -> None:
        """Makes the phone as the scenario says."""
        if act := self._acts.get(key):
            act()

    def is_unhealthy(self, key: str) -> bool:
        return self._told(key) != HABITS[key].default

    def tick(self, now: float) -> float | None:
        """What has to be done again and again. Returns the seconds after which to come again, if at all."""
        return min(filter(None, (self._pacer.tick(now), self.phantom.tick(now))), default=None)

    def refusals(self) -> Refusals:
        """Which system calls a process that starts now cannot use."""
        return Refusals(self._told("sysv") == "kill", self._told("links") == "denied")

    @property
    def _acts(self) -> Mapping[str, Callable[[], None]]:
        scenario = self.paths.scenario
        return {
            "clock": partial(masks.preload, self.paths),
            "cpuset": self._be_scheduled,
            "linker": partial(masks.break_linker, scenario),
            "opencl": partial(masks.hide_opencl, scenario),
            "phantom": self._kill_phantoms,
            "preload": partial(sessions.install_preload, self.paths),
            "proc": self._hide_proc,
            "sleeps": self._set_pace,
            "throttle": self._throttle,
            "tmpdir": partial(sessions.allow_temporary_files, self.paths),
        }

    def _hide_proc(self) -> None:
        masks.hide_proc(self.paths.scenario)
        masks.preload(self.paths)

    def _told(self, key: str) -> str:
        return told(self.paths.scenario, key)

    @property
    def _is_background(self) -> bool:
        return self._told("cpuset") == "background"

    def _be_scheduled(self) -> None:
        cores.confine(self.cores.usable(background=self._is_background))
        self._throttle()

    def _throttle(self) -> None:
        if self.has_namespaces:
            self._show_cores()
        self._set_pace()

    def _show_cores(self) -> None:
        self.cores.show(cores.CPUS, background=self._is_background, share=float(self._told("throttle")))

    def _set_pace(self) -> None:
        speed = cores.LITTLE_SPEED if self._is_background else 1.0
        self._pacer.set(share=speed * float(self._told("throttle")), naps=self._told("sleeps") == "stretched")

    def _kill_phantoms(self) -> None:
        self.phantom.on = self._told("phantom") == "on"
