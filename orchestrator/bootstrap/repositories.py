"""The cluster's package snapshot, made when the first phone needs it, and the same for all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from typing import Final

from orchestrator.paths import cache_dir
from orchestrator.provision.desired_state import Repository
from orchestrator.provision.facts import Facts
from orchestrator.provision.gather_desired import PackageSource
from orchestrator.provision.termux.mirror import serve

_LOOPBACK: Final = IPv4Network("127.0.0.0/8")


class Repositories:
    def __init__(self, source: PackageSource, url: str, port: int) -> None:
        self._source = source
        self._url = url
        self.port = port
        self._lock = threading.Lock()
        self._made: dict[str, Repository] = {}

    def of(self, facts: Facts) -> Repository:
        with self._lock:
            if facts.arch not in self._made:
                snapshots = self._source.snapshots([facts], keep=True)
                self._made |= self._source.repositories(snapshots, self._url)
            return self._made[facts.arch]


@contextmanager
def served(source: PackageSource) -> Iterator[Repositories]:
    """On this computer's loopback address only: adb brings phones there."""
    listener = socket.create_server(("127.0.0.1", 0))
    with serve(cache_dir() / "termux", listener, _LOOPBACK) as url:
        yield Repositories(source, url, listener.getsockname()[1])
