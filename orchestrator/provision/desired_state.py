"""The desired state of all phones, decided on this computer before anything is changed, and the steps towards it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Final

from orchestrator.fleet import PhoneConnection
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.provision.bundle import Bundle
from orchestrator.provision.engine import Step
from orchestrator.provision.resources import PackageList
from orchestrator.provision.ssh_keys import SshKeys
from orchestrator.provision.termux.index import Index
from orchestrator.provision.termux_facts import TermuxFacts
from orchestrator.provision.wheels import Wheel

_LOOPBACK: Final = IPv4Network("127.0.0.0/8")


@dataclass(frozen=True)
class Repository:
    """A package snapshot for one architecture."""

    index: Index
    needed: tuple[str, ...]  # packages that every phone should have, dependencies included
    sha256: str  # of the index as it is served, uncompressed
    url: str | None = None  # where phones find it; None in a dry run


@dataclass(frozen=True)
class DesiredState:
    cluster: Cluster
    packages: PackageList
    repositories: Mapping[str, Repository]  # by architecture
    keys: SshKeys
    bundles: Mapping[str, Bundle]  # the agent, by architecture
    mpi4py_version: str
    wheels: Mapping[str, Wheel] = field(default_factory=dict)  # of mpi4py, by ABI: those built so far
    pyopencl_version: str = ""
    gpu_wheels: Mapping[str, Wheel] = field(default_factory=dict)  # of pyopencl, by ABI: those built so far

    @property
    def peers(self) -> IPv4Network:
        return peer_network(self.cluster.subnet)


def peer_network(subnet: IPv4Network) -> IPv4Network:
    """The source addresses of connections within the cluster.

    On the loopback interface every connection comes from 127.0.0.1, whatever its destination.
    """
    return _LOOPBACK if subnet.is_loopback else subnet


@dataclass(frozen=True)
class SshTarget:
    """A phone that is being provisioned over SSH."""

    phone: Phone
    connect: Callable[[], PhoneConnection]  # the open connection, or a new one if that was lost
    verify_new_login: Callable[[], None]  # opens another connection; raises PhoneError


ProvisionStep = Step[SshTarget, TermuxFacts, DesiredState, str]
Changes = tuple[str, ...]  # descriptions of what a step would change; empty: nothing
