"""All that is known of one phone when it is judged: how it was reached, what it told, what the others are like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.result import Phase
from orchestrator.health.doctor_facts import Facts, Session
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode


@dataclass(frozen=True)
class Contact:
    """How an attempt to reach a phone ended."""

    phase: Phase | None = None  # None: it is there
    error: str = ""
    remedy: str = ""
    code: ErrorCode | None = None
    shown: HostKey | None = None  # the key that answered instead of the pinned one
    like: tuple[str, ...] = ()  # phones whose pinned key that is
    like_there: bool = False  # one of them answered at its own address
    elsewhere: str = ""  # an address at which the phone's own key answers

    @property
    def ok(self) -> bool:
        return self.phase is None


@dataclass(frozen=True)
class Earlier:
    """What was remembered of the phone when it was last examined."""

    when: float
    keeper: str | None = None
    percentage: float | None = None
    plugged: bool | None = None


@dataclass(frozen=True)
class Common:
    """What holds for all phones, or follows from all of them together."""

    interface: str = "eth0"
    subnet: IPv4Network | None = None  # None: phones without a network of their own
    versions: Mapping[str, str] = field(default_factory=dict)  # package -> the version most phones have
    refusing: Mapping[str, int] = field(default_factory=dict)  # switch -> phones on which nothing listens
    sizes: Mapping[str, int] = field(default_factory=dict)  # switch -> phones looked at
    killed: Mapping[str, str] = field(default_factory=dict)  # phone -> the newest run in which its rank was killed
    slow: frozenset[str] = frozenset()  # phones whose answers are late by themselves
    host: str = "HOST"  # this computer's address on the wired network
    now: float = 0.0


@dataclass(frozen=True)
class Seen:
    phone: Phone
    contact: Contact
    facts: Facts | None = None
    earlier: Earlier | None = None
    common: Common = field(default_factory=Common)
    neighbour: Phone | None = None  # whom it was asked to reach
    known_session: Session | None = None  # where nothing more was asked

    @property
    def session(self) -> Session | None:
        return self.facts.session if self.facts else self.known_session
