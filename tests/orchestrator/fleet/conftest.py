from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.fleet import Fleet, PhoneConnection, ensure_keypair
from orchestrator.fleet.network import DirectNetwork
from orchestrator.paths import ClusterState
from tests.orchestrator.fleet.servers import Server, free_port, loopback_phone, start_server

RACK = 50


@pytest.fixture(scope="session")
def login_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = tmp_path_factory.mktemp("login") / "id_ed25519"
    ensure_keypair(key, "host@test")
    return key


@pytest.fixture(scope="session")
def rack(tmp_path_factory: pytest.TempPathFactory, login_key: Path) -> Iterator[list[Server]]:
    root, port = tmp_path_factory.mktemp("rack"), free_port()
    phones = [loopback_phone(number, port) for number in range(1, RACK + 1)]
    servers = [start_server(root / phone.name, phone, Path(f"{login_key}.pub")) for phone in phones]
    for server in servers:
        server.await_port()
    yield servers
    for server in servers:
        server.process.terminate()
    for server in servers:
        server.process.wait(10)


@pytest.fixture
def state(tmp_path: Path, login_key: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterState:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state"))
    state = ClusterState("test")
    state.root.mkdir(parents=True)
    for suffix in ("", ".pub"):
        shutil.copy(f"{login_key}{suffix}", f"{state.host_key}{suffix}")
    return state


@pytest.fixture
def fleet(rack: list[Server], state: ClusterState) -> Iterator[Fleet]:
    """A few phones of the rack, met for the first time."""
    phones = [server.phone for server in rack[:4]]
    with Fleet(phones, state, DirectNetwork(), trust_new=True) as fleet:
        yield fleet


@pytest.fixture
def server(rack: list[Server]) -> Server:
    return rack[0]


@pytest.fixture
def phone(fleet: Fleet, server: Server) -> PhoneConnection:
    return fleet.connection(server.phone)
