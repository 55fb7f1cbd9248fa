"""What chaos does to phones, and what a run owes then."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from orchestrator.records.causes import Cause


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
    causes: frozenset[Cause] = frozenset()  # that a diagnosis may give for it
    target: Target = Target.ANY


TWO_AT_ONCE = "two at once"

_KILLED = frozenset({Cause.RANK_KILLED, Cause.RANK_CRASHED, Cause.RANK_MISSING})
_SILENT = frozenset({Cause.PHONE_UNREACHABLE, Cause.LOST_CONTACT})
_STOPS, _GOES_ON, _EITHER = Effect.STOPS, Effect.GOES_ON, Effect.EITHER

CATALOGUE = (
    Fault("rank killed", "the rank's process gets SIGKILL", _STOPS, _KILLED),
    Fault("rank frozen", "the rank's process gets SIGSTOP", _STOPS, frozenset({Cause.RANK_FROZEN})),
    Fault("power off", "the phone is off, and loses what it has in memory", _STOPS, _SILENT),
    Fault("cable out", "the cable is pulled at the switch", _STOPS, _SILENT),
    Fault("head dies", "power off, of the head phone", _STOPS, _SILENT, Target.HEAD),
    Fault("host dies", "clusterctl gets SIGKILL; attach comes later", _GOES_ON, target=Target.HOST),
    Fault("sshd killed", "the listening sshd is gone", _GOES_ON),
    Fault("cable flapping", "the link is down and up again, five times", _EITHER, _SILENT),
    Fault("slow link", "the cable carries 10 Mbit/s", _GOES_ON),
    Fault("corruption", "one packet of a hundred has a wrong bit", _GOES_ON),
    Fault("disk full", "nothing more can be written", _EITHER, frozenset({Cause.DISK_FULL})),
    Fault("memory limit", "the rank gets no more memory than it has", _EITHER, _KILLED | {Cause.OUT_OF_MEMORY}),
    Fault("clock jump", "the clock is 90 s ahead", _GOES_ON),
    Fault(
        "phantom reaper",
        "of too many processes, the oldest die",
        _EITHER,
        _KILLED | {Cause.SSHD_DOWN, Cause.LOST_CONTACT},
    ),
    Fault("throttling", "the phone computes at a third of its speed", _GOES_ON),
)
BY_NAME = {fault.name: fault for fault in CATALOGUE}


def paired() -> tuple[Fault, ...]:
    """Those of which two come at once: what does nothing by itself shows nothing more in company."""
    return tuple(fault for fault in CATALOGUE if fault.effect is Effect.STOPS or fault.target is Target.HOST)
