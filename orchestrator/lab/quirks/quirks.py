"""All quirks of one phone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.quirks import cores, masks, sessions
from orchestrator.lab.quirks.phantom import PhantomKiller
from orchestrator.lab.quirks.throttle import ProcessThrottle
from orchestrator.lab.seccomp import SeccompPolicy
from orchestrator.lab.termux import QUIRKS, read_setting


@dataclass
class Quirks:
    paths: PhonePaths
    cores: cores.PhoneCores
    phantom: PhantomKiller
    has_namespaces: bool
    _throttler: ProcessThrottle = field(default_factory=ProcessThrottle)

    def start(self) -> None:
        """On boot: set up the cores, and apply every quirk whose setting is not the default."""
        if self.has_namespaces:
            cores.mount_empty_sysfs()
            self._write_cores()
        for key in self._handlers:
            if self.is_active(key):
                self.apply(key)

    def apply(self, key: str) -> None:
        """Apply the stored setting of a quirk."""
        if handler := self._handlers.get(key):
            handler()

    def is_active(self, key: str) -> bool:
        return self._value(key) != QUIRKS[key].default

    def tick(self, now: float) -> float | None:
        """Do periodic work. Return the seconds until the next call is due, or None if no periodic work is active."""
        return min(filter(None, (self._throttler.tick(now), self.phantom.tick(now))), default=None)

    def seccomp_policy(self) -> SeccompPolicy:
        """The seccomp policy for processes that start now."""
        return SeccompPolicy(self._value("sysvipc") == "sigsys", self._value("hardlinks") == "denied")

    @property
    def _handlers(self) -> Mapping[str, Callable[[], None]]:
        scenario = self.paths.scenario
        return {
            "clock": partial(masks.write_preload, self.paths),
            "cpuset": self._apply_cpuset,
            "doze": self._set_speed,
            "linker": partial(masks.break_linker, scenario),
            "opencl": partial(masks.hide_opencl, scenario),
            "phantom": self._apply_phantom,
            "preload": partial(sessions.apply_preload, self.paths),
            "proc": self._apply_proc,
            "throttle": self._apply_throttle,
            "tmpdir": partial(sessions.apply_tmpdir, self.paths),
        }

    def _apply_proc(self) -> None:
        masks.hide_proc(self.paths.scenario)
        masks.write_preload(self.paths)

    def _value(self, key: str) -> str:
        return read_setting(self.paths.scenario, key)

    @property
    def _is_background(self) -> bool:
        return self._value("cpuset") == "background"

    def _apply_cpuset(self) -> None:
        cores.set_affinity(self.cores.usable(background=self._is_background))
        self._apply_throttle()

    def _apply_throttle(self) -> None:
        if self.has_namespaces:
            self._write_cores()
        self._set_speed()

    def _write_cores(self) -> None:
        self.cores.write_sysfs(cores.CPUS, background=self._is_background, speed=float(self._value("throttle")))

    def _set_speed(self) -> None:
        speed = cores.LITTLE_CORE_SPEED if self._is_background else 1.0
        self._throttler.set(speed=speed * float(self._value("throttle")), doze=self._value("doze") == "on")

    def _apply_phantom(self) -> None:
        self.phantom.enabled = self._value("phantom") == "on"
