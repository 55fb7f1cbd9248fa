"""Everything the checks of `doctor` know about one phone: how it was reached, its facts, and those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.result import Phase
from orchestrator.health.doctor_facts import DoctorFacts, ProbeResult
from orchestrator.health.session_facts import SessionFacts
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode


@dataclass(frozen=True)
class ContactResult:
    """The outcome of an attempt to connect to a phone."""

    phase: Phase | None = None  # where it failed; None: connected
    error: str = ""
    remedy: str = ""
    code: ErrorCode | None = None
    presented_key: HostKey | None = None  # the host key that the phone presented in place of the pinned one
    same_key: tuple[str, ...] = ()  # phones for which that key is pinned
    same_key_reachable: bool = False  # one of them answered at its own address
    found_at: str = ""  # another address, where the pinned key of the phone answers

    @property
    def ok(self) -> bool:
        return self.phase is None


@dataclass(frozen=True)
class PreviousFacts:
    """What the last examination of the phone found."""

    when: float
    sshd_supervisor: str | None = None
    percentage: float | None = None
    plugged: bool | None = None


@dataclass(frozen=True)
class ClusterFacts:
    """What is the same for all phones, or follows from all of them together."""

    interface: str = "eth0"
    subnet: IPv4Network | None = None  # None: phones without their own network
    versions: Mapping[str, str] = field(default_factory=dict)  # package -> the version of most phones
    refusing: Mapping[str, int] = field(default_factory=dict)  # switch -> phones that refuse connections
    sizes: Mapping[str, int] = field(default_factory=dict)  # switch -> phones examined
    killed: Mapping[str, str] = field(default_factory=dict)  # phone -> the newest run in which its rank was killed
    slow: frozenset[str] = frozenset()  # phones that answer late for reasons of their own
    host: str = "HOST"  # this computer's address on the wired network
    now: float = 0.0


@dataclass(frozen=True)
class Observation:
    phone: Phone
    contact: ContactResult
    facts: DoctorFacts | None = None
    previous: PreviousFacts | None = None
    cluster: ClusterFacts = field(default_factory=ClusterFacts)
    neighbor: Phone | None = None  # the phone that it was asked to log in to
    session_facts: SessionFacts | None = None  # of a preflight, which collects nothing else

    def probe(self, name: str) -> ProbeResult | None:
        return self.facts.probes.get(name) if self.facts else None

    @property
    def session(self) -> SessionFacts | None:
        return self.facts.session if self.facts else self.session_facts
