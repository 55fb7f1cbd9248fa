"""Package repositories for the phones on USB: one snapshot per architecture, made when the first phone needs it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from typing import Final

from orchestrator.paths import cache_dir
from orchestrator.provision.desired_state import Repository
from orchestrator.provision.package_source import PackageSource
from orchestrator.provision.termux.mirror import serve
from orchestrator.provision.termux_facts import TermuxFacts

_LOOPBACK: Final = IPv4Network("127.0.0.0/8")


class Repositories:
    def __init__(self, source: PackageSource, url: str, port: int) -> None:
        self._source = source
        self._url = url
        self.port = port
        self._lock = threading.Lock()
        self._by_arch: dict[str, Repository] = {}

    def for_phone(self, facts: TermuxFacts) -> Repository:
        with self._lock:
            if facts.arch not in self._by_arch:
                snapshots = self._source.snapshots([facts], keep=True)
                self._by_arch |= self._source.repositories(snapshots, self._url)
            return self._by_arch[facts.arch]


@contextmanager
def serve_repositories(source: PackageSource) -> Iterator[Repositories]:
    """On this computer's loopback address, which `adb reverse` makes available to phones."""
    listener = socket.create_server(("127.0.0.1", 0))
    with serve(cache_dir() / "termux", listener, _LOOPBACK) as url:
        yield Repositories(source, url, listener.getsockname()[1])
