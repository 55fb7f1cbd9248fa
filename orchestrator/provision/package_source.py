"""Where the packages of phones come from: a new snapshot of the upstream repository, or an earlier one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.errors import ClusterctlError
from orchestrator.inventory.model import Cluster
from orchestrator.provision.desired_state import Repository
from orchestrator.provision.resources import PackageList
from orchestrator.provision.termux.index import closure
from orchestrator.provision.termux.snapshot import OnMessage, Snapshot, SnapshotStore
from orchestrator.provision.termux.upstream import Upstream, UpstreamError
from orchestrator.provision.termux_facts import TermuxFacts


def default_upstream(cluster: Cluster, packages: PackageList) -> str:
    return (cluster.lab / "upstream").as_uri() if cluster.lab else packages.upstream


class PackageSource:
    """Snapshots for the architectures of some phones."""

    def __init__(
        self,
        upstream: Upstream,
        packages: PackageList,
        cache: Path,
        on_message: OnMessage,
        *,
        offline: bool,
        dry_run: bool,
    ) -> None:
        self._upstream = upstream
        self._packages = packages
        self._cache = cache
        self._on_message = on_message
        self._offline = offline
        self._dry_run = dry_run

    def snapshots(self, facts: Iterable[TermuxFacts], *, keep: bool) -> dict[str, Snapshot]:
        """By architecture. `keep`: reuse the latest snapshot if it has all packages.

        A part of a cluster keeps the snapshot, so that its versions match those of the other phones. An architecture
        without a snapshot is left out with a message. If no architecture has one, that is an error.
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
            self._on_message(failed.message)
        return found

    def repositories(self, snapshots: Mapping[str, Snapshot], address: str | None = None) -> dict[str, Repository]:
        """By architecture. `address`: of the package mirror, once it runs."""
        return {arch: self._repository(snapshot, address) for arch, snapshot in snapshots.items()}

    def _repository(self, snapshot: Snapshot, address: str | None) -> Repository:
        needed = tuple(package.name for package in closure(snapshot.index, self._packages.phones))
        url = address and f"{address}/{snapshot.arch}/{snapshot.id}"
        return Repository(snapshot.index, needed, snapshot.sha256, url)

    def _snapshot(self, arch: str, installed: set[str], *, keep: bool) -> Snapshot:
        store = SnapshotStore(self._cache, arch, self._upstream)
        required = (*self._packages.phones, *self._packages.builder)
        latest = store.latest()
        if latest and keep and all(name in latest.index for name in required):
            return latest
        if self._offline:
            return self._fall_back(latest, arch, "--offline was given")
        try:
            optional = {*installed, *self._packages.gpu_builder}  # if the repository has them
            return (store.plan if self._dry_run else store.create)(required, optional, self._on_message)
        except UpstreamError as error:
            if latest is None:
                raise
            return self._fall_back(latest, arch, error.message)

    def _fall_back(self, latest: Snapshot | None, arch: str, reason: str) -> Snapshot:
        if latest is None:
            raise ClusterctlError(
                f"there is no earlier package snapshot for {arch} of {self._upstream.url}",
                remedy="run clusterctl provision once without --offline",
            )
        self._on_message(f"using packages of the earlier snapshot {latest.id}: {reason}")
        return latest
