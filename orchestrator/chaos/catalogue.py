"""What chaos does to phones, and what a run owes then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """What is expected of the run."""

    STOPS = "starts again, and names the cause"
    GOES_ON = "goes on, and blames nobody"
    EITHER = "goes on, or starts again and names the cause"


class Target(Enum):
    ANY = "any phone of the run"
    HEAD = "the head phone"
    HOST = "this computer's clusterctl"


@dataclass(frozen=True)
class Fault:
    name: str
    what: str
    effect: Effect
    named: str = "(?!)"  # how the cause may be told, besides the phone's name: a regular expression
    target: Target = Target.ANY

    def is_named_in(self, message: str) -> bool:
        return re.search(self.named, message) is not None


TWO_AT_ONCE = "two at once"

_KILLED = r"was killed|rank is gone"
_SILENT = r"does not answer: cable or power|do not answer: cable, switch or power|lost contact"
_STOPS, _GOES_ON, _EITHER = Effect.STOPS, Effect.GOES_ON, Effect.EITHER

CATALOGUE = (
    Fault("rank killed", "the rank's process gets SIGKILL", _STOPS, _KILLED),
    Fault("rank frozen", "the rank's process gets SIGSTOP", _STOPS, "frozen"),
    Fault("power off", "the phone is off, and loses what it has in memory", _STOPS, _SILENT),
    Fault("cable out", "the cable is pulled at the switch", _STOPS, _SILENT),
    Fault("head dies", "power off, of the head phone", _STOPS, _SILENT, Target.HEAD),
    Fault("host dies", "clusterctl gets SIGKILL; attach comes later", _GOES_ON, target=Target.HOST),
    Fault("sshd killed", "the listening sshd is gone", _GOES_ON),
    Fault("cable flapping", "the link is down and up again, five times", _EITHER, _SILENT),
    Fault("slow link", "the cable carries 10 Mbit/s", _GOES_ON),
    Fault("corruption", "one packet of a hundred has a wrong bit", _GOES_ON),
    Fault("disk full", "nothing more can be written", _EITHER, "disk is full|No space left"),
    Fault("memory limit", "the rank gets no more memory than it has", _EITHER, f"[Mm]emory|{_KILLED}"),
    Fault("clock jump", "the clock is 90 s ahead", _GOES_ON),
    Fault(
        "phantom reaper",
        "of too many processes, the oldest die",
        _EITHER,
        f"{_KILLED}|sshd is down|lost contact",
    ),
    Fault("throttling", "the phone computes at a third of its speed", _GOES_ON),
)
BY_NAME = {fault.name: fault for fault in CATALOGUE}


def paired() -> tuple[Fault, ...]:
    """Those of which two come at once: what does nothing by itself shows nothing more in company."""
    return tuple(fault for fault in CATALOGUE if fault.effect is Effect.STOPS or fault.target is Target.HOST)
