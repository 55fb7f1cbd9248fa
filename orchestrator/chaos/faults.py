"""How each fault of the catalogue is brought about on a phone of the lab, and mended."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.chaos.catalogue import CATALOGUE, Fault, Target
from orchestrator.chaos.testbed import Ground
from orchestrator.errors import ClusterctlError
from orchestrator.lab import links
from orchestrator.lab.programs import find_program
from phone_agent.contract import layout

SLOW_LINK = "10mbit"
FLAPS, FLAP_S = 5, 0.3
_WHOLE = ("link=up", "disk=free", "clock=0", "phantom=off", "throttle=1", "sshd=up")
CROWD = 40  # processes: with those that are there, more than Android's 32
_NETEM = ("netem", "corrupt", "1%")

# Run by bash on the phone, with what they need as arguments.
_LIMIT_MEMORY = r"""
size=$(sed -n 's/^VmSize:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$1/status") && [ -n "$size" ] &&
/apex/host/bin/prlimit --pid "$1" --as=$((size * 1024))
"""
_CROWD = 'for each in $(seq "$1"); do sleep 60 >/dev/null 2>&1 & done'
_DISPERSE = "pkill -KILL -x sleep; true"

Mend = Callable[[], None]


@dataclass(frozen=True)
class Victim:
    ground: Ground
    phone: str
    run_id: str
    attempt: int

    def rank(self) -> str:
        """The process of its rank."""
        log = layout.attempt_dir(self.run_id, self.attempt) / layout.RANK_EVENTS_FILE
        told = self.ground.on(self.phone, "sed", "-n", r's/.*"pid": \([0-9]*\).*/\1/p;1q', str(log)).strip()
        if not told:
            raise ClusterctlError(f"{self.phone} has no rank of {self.run_id}")
        return told

    def signal(self, name: str) -> None:
        self.ground.on(self.phone, "bash", "-c", 'kill "-$1" "$2"', "bash", name, self.rank())


def offered(ground: Ground) -> tuple[Fault, ...]:
    """What this computer's kernel can do of the catalogue."""
    return tuple(fault for fault in CATALOGUE if fault.name != "corruption" or _has_netem(ground))


def _has_netem(ground: Ground) -> bool:
    try:
        _tc(ground, "qdisc", "add", "dev", "lo", "root", *_NETEM)
    except ClusterctlError:
        return False
    _tc(ground, "qdisc", "delete", "dev", "lo", "root")
    return True


def injure(fault: Fault, victim: Victim) -> Mend:
    """Does it, and returns how to undo it. What is done to the host is not done here."""
    if fault.target is Target.HOST:
        raise ValueError(fault.name)
    return _INJURIES[fault.name](victim)


def heal(ground: Ground) -> None:
    """Every phone, of whatever may be left of a blow."""
    for phone in ground.spec.phones:
        with suppress(ClusterctlError):
            ground.power(phone.name, "on")
        for whole in _WHOLE:
            with suppress(ClusterctlError):
                ground.set(phone.name, whole)
        with suppress(ClusterctlError):
            victim = Victim(ground, phone.name, "", 0)
            _reshape(victim, links.shaped(_cable(victim), ground.spec.shape.rate))


def _kill(victim: Victim) -> Mend:
    victim.signal("KILL")
    return _nothing


def _freeze(victim: Victim) -> Mend:
    victim.signal("STOP")
    return _nothing  # whoever recovers the run ends it


def _power_off(victim: Victim) -> Mend:
    victim.ground.power(victim.phone, "off")
    return lambda: victim.ground.power(victim.phone, "on")


def _flap(victim: Victim) -> Mend:
    for _ in range(FLAPS):
        victim.ground.set(victim.phone, "link=down")
        time.sleep(FLAP_S)
        victim.ground.set(victim.phone, "link=up")
        time.sleep(FLAP_S)
    return _nothing


def _slow_link(victim: Victim) -> Mend:
    _reshape(victim, links.shaped(_cable(victim), SLOW_LINK))
    return lambda: _reshape(victim, links.shaped(_cable(victim), victim.ground.spec.shape.rate))


def _corrupt(victim: Victim) -> Mend:
    _reshape(victim, f"qdisc add dev {_cable(victim)} root {' '.join(_NETEM)}")
    return lambda: _reshape(victim, links.shaped(_cable(victim), victim.ground.spec.shape.rate))


def _limit_memory(victim: Victim) -> Mend:
    victim.ground.on(victim.phone, "bash", "-c", _LIMIT_MEMORY, "bash", victim.rank())
    return _nothing  # the limit is the process's, and goes with it


def _reap(victim: Victim) -> Mend:
    victim.ground.on(victim.phone, "bash", "-c", _CROWD, "bash", str(CROWD))
    victim.ground.set(victim.phone, "phantom=on")

    def mend() -> None:
        victim.ground.set(victim.phone, "phantom=off")
        victim.ground.on(victim.phone, "bash", "-c", _DISPERSE)
        victim.ground.set(victim.phone, "sshd=up")

    return mend


def _setting(breaks: str, heals: str) -> Callable[[Victim], Mend]:
    def act(victim: Victim) -> Mend:
        victim.ground.set(victim.phone, breaks)
        return lambda: victim.ground.set(victim.phone, heals)

    return act


def _nothing() -> None:
    """To mend."""


_INJURIES: dict[str, Callable[[Victim], Mend]] = {
    "rank killed": _kill,
    "rank frozen": _freeze,
    "power off": _power_off,
    "head dies": _power_off,
    "cable out": _setting("link=down", "link=up"),
    "cable flapping": _flap,
    "slow link": _slow_link,
    "corruption": _corrupt,
    "sshd killed": _setting("sshd=down", "sshd=up"),
    "disk full": _setting("disk=full", "disk=free"),
    "memory limit": _limit_memory,
    "clock jump": _setting("clock=+90", "clock=0"),
    "phantom reaper": _reap,
    "throttling": _setting("throttle=0.33", "throttle=1"),
}


def _cable(victim: Victim) -> str:
    """Its end at the switch: what goes to the phone is shaped there."""
    return victim.ground.spec.phone(victim.phone).cable


def _reshape(victim: Victim, line: str) -> None:
    _tc(victim.ground, *line.replace("qdisc add", "qdisc replace").split())


def _tc(ground: Ground, *words: str) -> None:
    ground.inside(find_program("tc") or "tc", *words)
