"""Steps of a bootstrap: adb commands on one phone, planned from its facts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from orchestrator.bootstrap.adb import AdbError, Device, shell_arguments
from orchestrator.bootstrap.android_facts import AndroidFacts
from orchestrator.bootstrap.apk import Apks
from orchestrator.inventory.model import Cluster
from orchestrator.provision.desired_state import Repository, peer_network
from orchestrator.provision.engine import Step
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode

_ACTION_SECONDS = 60.0


@dataclass(frozen=True)
class BootstrapConfig:
    """The desired state: the same for all phones, decided before any of them is changed."""

    cluster: Cluster
    apks: Apks
    login_public: str  # public key of this computer
    ntp: IPv4Address | None  # None: not changed

    @property
    def peers(self) -> IPv4Network:
        return peer_network(self.cluster.subnet)


@dataclass(frozen=True)
class PhoneFacts:
    android: AndroidFacts
    termux: TermuxFacts | None = None  # None until Termux has unpacked its programs
    accepts_login: Callable[[], bool] = lambda: False  # over SSH, with the host key that was read over the cable


@dataclass(frozen=True)
class Action:
    description: str  # in the imperative: `turn Wi-Fi off`
    adb: tuple[str, ...]  # arguments of adb after -s SERIAL

    @classmethod
    def shell(cls, description: str, *words: str) -> Action:
        return cls(description, shell_arguments(*words))

    def __str__(self) -> str:
        return self.description


@dataclass(frozen=True)
class AdbTarget:
    """A phone that is being bootstrapped over adb."""

    device: Device
    collect_facts: Callable[[], PhoneFacts]
    on_wait: Callable[[str], None]  # reports what the phone waits for
    wait_online: Callable[[float, str], None]  # seconds, and the reason to report while the phone is away
    repository: Callable[[TermuxFacts], Repository]
    mirror_port: int

    def wait_until(self, condition: Callable[[], bool], seconds: float, reason: str) -> bool:
        """Poll until the condition holds. False: timed out."""
        deadline = time.monotonic() + seconds
        self.on_wait(reason)
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True

    def run(self, actions: Iterable[Action]) -> None:
        for action in actions:
            result = self.device.run(*action.adb, timeout=_ACTION_SECONDS)
            if not result.ok:
                raise AdbError(f"could not {action}: {result.summary}", code=ErrorCode.COMMAND_FAILED)


BootstrapStep = Step[AdbTarget, PhoneFacts, BootstrapConfig, Action]
