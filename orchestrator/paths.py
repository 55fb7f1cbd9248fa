"""Where the host keeps things: state that matters, and caches that can be made again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


def state_dir() -> Path:
    """Keys, pinned host keys, runs, the lab. `CLUSTERCTL_STATE` moves it."""
    return _dir("CLUSTERCTL_STATE", "XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """Downloads, and what this computer built. `CLUSTERCTL_CACHE` moves it."""
    return _dir("CLUSTERCTL_CACHE", "XDG_CACHE_HOME", ".cache")


def lab_dir() -> Path:
    return state_dir() / "lab"


def lab_inventory() -> Path:
    return lab_dir() / "inventory.yaml"


def _dir(own: str, xdg: str, fallback: str) -> Path:
    if chosen := os.environ.get(own):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get(xdg)
    return (Path(base) if base else Path.home() / fallback).absolute() / "clusterctl"


def known_clusters() -> list[ClusterState]:
    """All clusters that this computer has state of."""
    return [ClusterState(path.name) for path in sorted((state_dir() / "clusters").glob("*/"))]


@dataclass(frozen=True)
class ClusterState:
    """The host's memory of one cluster, by the name in its inventory."""

    cluster: str

    @property
    def root(self) -> Path:
        return state_dir() / "clusters" / self.cluster

    @property
    def host_key(self) -> Path:
        """Private key this computer logs in to the phones with."""
        return self.root / "id_ed25519"

    @property
    def phone_key(self) -> Path:
        """Private key the phones log in to each other with, to send datasets."""
        return self.root / "phones_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def failed(self) -> Path:
        """Names of the phones that failed last time: what `--limit @failed` selects."""
        return self.root / "failed.json"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def wheels(self) -> Path:
        """Wheels that phones of this cluster built. They are not used for other clusters."""
        return self.root / "wheels"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor process."""
        return self.root / "supervisor.lock"

    @property
    def supervisor_status(self) -> Path:
        return self.root / "supervisor.json"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"
