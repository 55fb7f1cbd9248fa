"""The faults that chaos injects, and how a run is expected to react to each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from orchestrator.records.causes import Cause


class Effect(Enum):
    """The expected reaction of the run."""

    RESTARTS = "restarts, and names the cause"
    CONTINUES = "continues, and blames no phone"
    EITHER = "continues, or restarts and names the cause"


class Target(Enum):
    ANY_PHONE = "any phone of the run"
    HEAD_PHONE = "the head phone"
    HOST = "all processes of clusterctl on this computer"
    RUN = "several phones, one after the other: see scenarios.py"


@dataclass(frozen=True)
class Fault:
    name: str
    description: str
    effect: Effect
    causes: frozenset[Cause] = frozenset()  # that a diagnosis may give for it
    target: Target = Target.ANY_PHONE


TWO_AT_ONCE = "two at once"

_KILLED = frozenset({Cause.RANK_KILLED, Cause.RANK_CRASHED, Cause.RANK_MISSING})
_UNREACHABLE = frozenset({Cause.PHONE_UNREACHABLE, Cause.LOST_CONTACT})
_HOSTILE = frozenset({Cause.AGENT_FAILED, Cause.NOT_FOLLOWED})
_RESTARTS, _CONTINUES, _EITHER = Effect.RESTARTS, Effect.CONTINUES, Effect.EITHER

CATALOG = (
    Fault("rank killed", "SIGKILL to the rank process", _RESTARTS, _KILLED),
    Fault("rank frozen", "SIGSTOP to the rank process", _RESTARTS, frozenset({Cause.RANK_FROZEN})),
    Fault("power off", "the phone is off, and loses its memory", _RESTARTS, _UNREACHABLE),
    Fault("cable out", "the cable is pulled at the switch", _RESTARTS, _UNREACHABLE),
    Fault("head dies", "the head phone is switched off", _RESTARTS, _UNREACHABLE, Target.HEAD_PHONE),
    Fault("hostile head", "the agent of the head phone answers with nonsense", _EITHER, _HOSTILE, Target.HEAD_PHONE),
    Fault("host dies", "SIGKILL to viewer and supervisor; systemd restarts it", _CONTINUES, target=Target.HOST),
    Fault("host reboot", "the host is off for a while, and has no systemd", _CONTINUES, target=Target.HOST),
    Fault("sshd killed", "the listening sshd is gone", _CONTINUES),
    Fault("cable flapping", "the link goes down and up five times", _EITHER, _UNREACHABLE),
    Fault("slow link", "10 Mbit/s to the phone", _CONTINUES),
    Fault("corruption", "one packet in a hundred has a flipped bit", _CONTINUES),
    Fault("disk full", "nothing more can be written", _EITHER, frozenset({Cause.DISK_FULL})),
    Fault("memory limit", "the rank cannot allocate more memory", _EITHER, _KILLED | {Cause.OUT_OF_MEMORY}),
    Fault("clock jump", "the clock jumps 90 s ahead", _CONTINUES),
    Fault(
        "phantom reaper",
        "Android kills the oldest of too many processes",
        _EITHER,
        _KILLED | {Cause.SSHD_DOWN, Cause.LOST_CONTACT},
    ),
    Fault("throttling", "the phone computes at a third of its speed", _CONTINUES),
    Fault(
        "old holder returns",
        "a phone was cut off; the others go on, then lose power",
        _RESTARTS,
        _UNREACHABLE,
        Target.RUN,
    ),
    Fault(
        "holder excluded",
        "the only phone that kept its power has a full disk",
        _RESTARTS,
        _UNREACHABLE | {Cause.DISK_FULL},
        Target.RUN,
    ),
    Fault(
        "rejoin fails",
        "a call fails while a phone rejoins, then a rank is killed",
        _RESTARTS,
        _UNREACHABLE,
        Target.RUN,
    ),
    Fault(
        "killed during resume",
        "launch --resume; SIGKILL to a rank that starts",
        _RESTARTS,
        _KILLED | {Cause.RANK_FAILED, Cause.LOST_CONTACT},
        Target.RUN,
    ),
    Fault("slow first step", "a rank is killed, and its phone restarts slowly", _RESTARTS, _KILLED, Target.RUN),
)
BY_NAME = {fault.name: fault for fault in CATALOG}


def combinable_faults() -> tuple[Fault, ...]:
    """Faults that are injected two at once: those that disturb a run by themselves."""
    single = [fault for fault in CATALOG if fault.target is not Target.RUN]
    return tuple(fault for fault in single if fault.effect is Effect.RESTARTS or fault.target is Target.HOST)
