from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.fleet import ensure_keypair
from orchestrator.paths import ClusterState
from tests.orchestrator.fleet.servers import Server, free_port, loopback_phone, start_server
from tests.security.fuzz import TRIED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TRIED:
        each = ", ".join(f"{promise} {count}" for promise, count in sorted(TRIED.items()))
        terminalreporter.write_line(f"inputs fuzzed: {sum(TRIED.values())} ({each})")


@pytest.fixture(scope="session")
def login_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = tmp_path_factory.mktemp("login") / "id_ed25519"
    ensure_keypair(key, "host@test")
    return key


@pytest.fixture
def state(tmp_path: Path, login_key: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterState:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state"))
    state = ClusterState("test")
    state.root.mkdir(parents=True)
    for suffix in ("", ".pub"):
        shutil.copy(f"{login_key}{suffix}", f"{state.host_key}{suffix}")
    return state


@pytest.fixture
def server(tmp_path: Path, login_key: Path) -> Iterator[Server]:
    """A real sshd that would forward anything to anybody."""
    phone = loopback_phone(1, free_port(), switch=9)
    server = start_server(tmp_path / "server", phone, Path(f"{login_key}.pub"))
    server.await_port()
    yield server
    server.stop()
