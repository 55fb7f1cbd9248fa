"""Puts together what phones should have: keys, packages, agent. Touches this computer only."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet import HostKeys, ensure_keypair
from orchestrator.fleet.host_keys import host_name
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState
from orchestrator.provision.desired_state import Keys, Repository
from orchestrator.provision.facts import Facts
from orchestrator.provision.resources import PackageList
from orchestrator.provision.termux.closure import closure
from orchestrator.provision.termux.snapshot import Progress, Snapshot, SnapshotStore
from orchestrator.provision.termux.upstream import Upstream, UpstreamError


def default_upstream(cluster: Cluster, packages: PackageList) -> str:
    return (cluster.lab / "upstream").as_uri() if cluster.lab else packages.upstream


def host_key(cluster: Cluster, state: ClusterState) -> str:
    """This computer's public key; the cluster's own is made if there is none."""
    if cluster.ssh_key is None:
        return ensure_keypair(state.host_key, f"clusterctl {cluster.name} host").read_text().strip()
    public = cluster.ssh_key.with_name(cluster.ssh_key.name + ".pub")
    if not public.exists():
        remedy = f"ssh-keygen -y -f {shlex.quote(str(cluster.ssh_key))} > {shlex.quote(str(public))}"
        raise UsageError(f"there is no {public} beside the login key of the inventory", remedy=remedy)
    return public.read_text().strip()


def gather_keys(cluster: Cluster, state: ClusterState) -> Keys:
    phone_public = ensure_keypair(state.phone_key, f"clusterctl {cluster.name} phones").read_text().strip()
    known = known_hosts(cluster, HostKeys(state.known_hosts))
    return Keys(host_key(cluster, state), state.phone_key.read_bytes(), phone_public, known)


def known_hosts(cluster: Iterable[Phone], pins: HostKeys) -> str:
    """One line a phone that is known, in ring order: the same text whoever was met first."""
    found = [(phone, key) for phone in cluster if (key := pins.pinned(phone))]
    return "".join(f"{host_name(phone)} {key.kind} {key.blob}\n" for phone, key in found)


class PackageSource:
    """Snapshots for the architectures of some phones."""

    def __init__(
        self, upstream: Upstream, packages: PackageList, cache: Path, note: Progress, *, offline: bool, dry_run: bool
    ) -> None:
        self._upstream = upstream
        self._packages = packages
        self._cache = cache
        self._note = note
        self._offline = offline
        self._dry_run = dry_run

    def snapshots(self, facts: Iterable[Facts], *, keep: bool) -> dict[str, Snapshot]:
        """By architecture. `keep`: an earlier snapshot that has everything is used as it is.

        Part of a cluster keeps it, so that its versions stay those of the other phones. An architecture that cannot be
        had is left out, and that is said; when none can be had, that is an error.
        """
        installed: dict[str, set[str]] = defaultdict(set)
        for each in facts:
            installed[each.arch].update(each.packages)
        found: dict[str, Snapshot] = {}
        errors: list[ClusterctlError] = []
        for arch, names in installed.items():
            try:
                found[arch] = self._snapshot(arch, names, keep=keep)
            except ClusterctlError as error:
                errors.append(error)
        if errors and not found:
            raise errors[0]
        for failed in errors:
            self._note(failed.message)
        return found

    def repositories(self, snapshots: Mapping[str, Snapshot], address: str | None = None) -> dict[str, Repository]:
        """By architecture; `address` is the mirror's, once it runs."""
        return {arch: self._repository(snapshot, address) for arch, snapshot in snapshots.items()}

    def _repository(self, snapshot: Snapshot, address: str | None) -> Repository:
        needed = tuple(package.name for package in closure(snapshot.index, self._packages.phones))
        url = address and f"{address}/{snapshot.arch}/{snapshot.id}"
        return Repository(snapshot.index, needed, snapshot.sha256, url)

    def _snapshot(self, arch: str, installed: set[str], *, keep: bool) -> Snapshot:
        store = SnapshotStore(self._cache, arch, self._upstream)
        wanted = (*self._packages.phones, *self._packages.builder)
        latest = store.latest()
        if latest and keep and all(name in latest.index for name in wanted):
            return latest
        if self._offline:
            return self._fall_back(latest, arch, "--offline was given")
        try:
            also = {*installed, *self._packages.gpu_builder}  # where the repository has them
            return (store.plan if self._dry_run else store.take)(wanted, also, self._note)
        except UpstreamError as error:
            if latest is None:
                raise
            return self._fall_back(latest, arch, error.message)

    def _fall_back(self, latest: Snapshot | None, arch: str, why: str) -> Snapshot:
        if latest is None:
            raise ClusterctlError(
                f"there is no earlier package snapshot for {arch} of {self._upstream.url}",
                remedy="clusterctl provision, without --offline, once",
            )
        self._note(f"packages come from the earlier snapshot {latest.id}: {why}")
        return latest
