from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Protocol

from orchestrator.bootstrap.adb import AdbError, Device, shell_arguments
from orchestrator.bootstrap.apk import Apks
from orchestrator.bootstrap.facts import Seen
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.provision.desired_state import Repository, peers
from orchestrator.provision.facts import Facts
from phone_agent.contract.errors import ErrorCode

_ACTION_SECONDS = 60.0


@dataclass(frozen=True)
class Want:
    """The same for all phones, decided before any of them is touched."""

    cluster: Cluster
    apks: Apks
    host_public: str
    ntp: IPv4Address | None  # None: left as it is

    @property
    def peers(self) -> IPv4Network:
        return peers(self.cluster.subnet)


@dataclass(frozen=True)
class Known:
    """What is known of a phone when a step is planned."""

    seen: Seen
    facts: Facts | None = None  # of Termux; None until its programs are unpacked
    answers: Callable[[], bool] = lambda: False  # does its sshd let us in, with the host key read over the cable?


@dataclass(frozen=True)
class Action:
    what: str  # in words: `forbid Android to end Termux's processes`
    adb: tuple[str, ...]  # the arguments of adb, after -s SERIAL

    @classmethod
    def shell(cls, what: str, *words: str) -> Action:
        return cls(what, shell_arguments(*words))


@dataclass(frozen=True)
class Site:
    """A phone being worked on."""

    device: Device
    phone: Phone
    want: Want
    look: Callable[[], Known]
    waiting: Callable[[str], None]  # tells what the phone waits for
    wait_online: Callable[[float, str], None]  # seconds; what to tell while the phone is away
    repository: Callable[[Facts], Repository]  # what this computer serves
    mirror_port: int

    def until(self, condition: Callable[[], bool], seconds: float, what: str, pause: float = 0.5) -> bool:
        """Polls; the phone's state is told meanwhile."""
        deadline = time.monotonic() + seconds
        self.waiting(what)
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
        return True


class Step(Protocol):
    @property
    def name(self) -> str: ...

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]: ...

    def apply(self, site: Site, known: Known, actions: Sequence[Action]) -> None: ...


class Plain:
    """A step whose actions are all there is to it."""

    def apply(self, site: Site, known: Known, actions: Sequence[Action]) -> None:
        del known
        run_all(site, actions)


def run_all(site: Site, actions: Sequence[Action]) -> None:
    for action in actions:
        done = site.device.run(*action.adb, timeout=_ACTION_SECONDS)
        if not done.ok:
            raise AdbError(f"could not {action.what}: {done.said}", code=ErrorCode.COMMAND_FAILED)
