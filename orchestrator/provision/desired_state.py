"""What a phone should have: the same for all, decided on the host before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Final

from orchestrator.inventory.model import Cluster
from orchestrator.provision.bundle import Bundle
from orchestrator.provision.resources import PackageList
from orchestrator.provision.termux.index import Index
from orchestrator.provision.wheels import Wheel

_LOOPBACK: Final = IPv4Network("127.0.0.0/8")


@dataclass(frozen=True)
class Keys:
    """What lets phones be reached: by this computer, and by each other."""

    host_public: str
    phone_private: bytes
    phone_public: str
    known_hosts: str  # pinned keys of the cluster's phones, as OpenSSH reads them


@dataclass(frozen=True)
class Repository:
    """A snapshot as a phone's architecture sees it."""

    index: Index
    needed: tuple[str, ...]  # what every phone has installed in the end, dependencies included
    sha256: str  # of the index as it is served, uncompressed
    url: str | None = None  # where phones find it; None in a dry run


@dataclass(frozen=True)
class Want:
    cluster: Cluster
    packages: PackageList
    repositories: Mapping[str, Repository]  # by architecture
    keys: Keys
    bundles: Mapping[str, Bundle]  # the agent, by architecture
    mpi4py_version: str
    wheels: Mapping[str, Wheel] = field(default_factory=dict)  # of mpi4py, by ABI: those built so far
    pyopencl_version: str = ""
    gpu_wheels: Mapping[str, Wheel] = field(default_factory=dict)  # of pyopencl, likewise

    @property
    def peers(self) -> IPv4Network:
        """Where the cluster's own connections come from."""
        return peers(self.cluster.subnet)


def peers(subnet: IPv4Network) -> IPv4Network:
    """On the loopback interface every connection comes from 127.0.0.1, whatever address it goes to."""
    return _LOOPBACK if subnet.is_loopback else subnet
