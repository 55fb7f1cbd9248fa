"""The nouns: a cluster has switches, a switch has ports, a port has a phone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from orchestrator.inventory.ring_order import ring_order


@dataclass(frozen=True)
class Phone:
    name: str
    switch: str
    port: int
    address: IPv4Address
    ssh_port: int = 8022
    user: str = "termux"  # Termux's sshd ignores the login name
    mac: str | None = None
    serial: str | None = None
    host_key: str | None = None  # `ssh-ed25519 AAAA…`: what its sshd must show, whatever this computer has met

    @property
    def where(self) -> str:
        return f"{self.switch}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name} ({self.where}, {self.address})"


@dataclass(frozen=True)
class Uplink:
    """The cable from a switch to its neighbor."""

    port: int
    to: str
    rate: str = "1gbit"
    to_port: int | None = None  # the cable's other end, where it is known


@dataclass(frozen=True)
class Switch:
    name: str
    ports: int
    phones: tuple[Phone, ...]  # by port
    uplink: Uplink | None = None


@dataclass(frozen=True)
class Cluster:
    name: str
    subnet: IPv4Network  # the wired network MPI may use
    host: IPv4Address | None  # this computer's address on it; None: found by asking the routing table
    interface: str
    rate: str
    switches: tuple[Switch, ...]
    source: Path = field(compare=False)
    ssh_key: Path | None = None  # None: the cluster's own key in the state directory
    lab: Path | None = None  # the lab directory behind a cluster of virtual phones
    _by_name: dict[str, Phone] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update({phone.name: phone for phone in self.phones})

    @cached_property
    def phones(self) -> tuple[Phone, ...]:
        """All phones in ring order: each switch once, port by port (see `ring_order`)."""
        return tuple(phone for switch in self.switches_in_ring_order for phone in switch.phones)

    @cached_property
    def switches_in_ring_order(self) -> tuple[Switch, ...]:
        by_name = {switch.name: switch for switch in self.switches}
        uplinks = {switch.name: switch.uplink.to for switch in self.switches if switch.uplink}
        return tuple(by_name[name] for name in ring_order(by_name, uplinks))

    def switch(self, name: str) -> Switch:
        return next(switch for switch in self.switches if switch.name == name)

    def phone(self, name: str) -> Phone:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Phone]:
        return iter(self.phones)

    def __len__(self) -> int:
        return len(self.phones)
