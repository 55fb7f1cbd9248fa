"""The cluster's SSH keys on this computer, as phones need them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.fleet import HostKeys, ensure_keypair
from orchestrator.fleet.host_keys import host_name
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState


@dataclass(frozen=True)
class SshKeys:
    login_public: str  # this computer logs in to phones with it
    phone_private: bytes  # phones log in to each other with it
    phone_public: str
    known_hosts: str  # pinned host keys of the cluster's phones, in OpenSSH format


def load_ssh_keys(cluster: Cluster, state: ClusterState) -> SshKeys:
    """Creates the cluster's own keys if they do not exist."""
    phone_public = ensure_keypair(state.phone_key, f"clusterctl {cluster.name} phones").read_text().strip()
    known_hosts = format_known_hosts(cluster, HostKeys(state.known_hosts))
    return SshKeys(login_public_key(cluster, state), state.phone_key.read_bytes(), phone_public, known_hosts)


def login_public_key(cluster: Cluster, state: ClusterState) -> str:
    """The public key of this computer: the inventory's, or the cluster's own, which is created if needed."""
    if cluster.ssh_key is None:
        return ensure_keypair(state.host_key, f"clusterctl {cluster.name} host").read_text().strip()
    public = cluster.ssh_key.with_name(cluster.ssh_key.name + ".pub")
    if not public.exists():
        remedy = f"ssh-keygen -y -f {shlex.quote(str(cluster.ssh_key))} > {shlex.quote(str(public))}"
        raise UsageError(f"the login key in the inventory has no public key file {public}", remedy=remedy)
    return public.read_text().strip()


def format_known_hosts(phones: Iterable[Phone], pins: HostKeys) -> str:
    """One line per phone with a pinned key, in ring order, so that the text does not depend on the order of pinning."""
    found = [(phone, key) for phone in phones if (key := pins.pinned(phone))]
    return "".join(f"{host_name(phone)} {key.kind} {key.blob}\n" for phone, key in found)


def key_body(public: str) -> str:
    """`ssh-ed25519 AAAA…` without the comment."""
    return " ".join(public.split()[:2])
