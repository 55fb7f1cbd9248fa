from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.cli.hosts import app
from orchestrator.fleet import HostKeys
from orchestrator.fleet.host_keys import HostKey
from orchestrator.inventory import load
from orchestrator.paths import ClusterState

INVENTORY = """
cluster: test
network: {subnet: 10.77.0.0/16, interface: eth0, rate: 1gbit, host: 10.77.0.1}
ssh: {port: 8022}
switches:
  sw1:
    ports: 48
    phones:
      - {ports: 1-3, name: "p1-{port:02}", address: "10.77.1.{port}"}
"""


@pytest.fixture
def inventory(tmp_path: Path, state: ClusterState) -> str:
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY)
    hosts = HostKeys(state.known_hosts)
    hosts.accept(load(path).phone("p1-01"), HostKey("ssh-ed25519", "AAAA0001"))
    hosts.accept(load(path).phone("p1-02"), HostKey("ssh-ed25519", "AAAA0002"))
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return str(result.stdout)


def test_list_tells_who_is_pinned(inventory: str) -> None:
    listed = json.loads(run("list", "-i", inventory, "--json"))
    assert [entry["phone"] for entry in listed] == ["p1-01", "p1-02", "p1-03"]
    assert [entry["fingerprint"] is None for entry in listed] == [False, False, True]


def test_list_as_a_table(inventory: str) -> None:
    lines = run("list", "-i", inventory).splitlines()
    assert "p1-01" in lines[1]
    assert "SHA256:" in lines[1]
    assert "not pinned yet" in lines[3]


def test_forget_unpins_only_the_named(inventory: str, state: ClusterState) -> None:
    assert json.loads(run("forget", "p1-02,p1-03", "-i", inventory, "--json")) == ["p1-02"]
    assert state.known_hosts.read_text().count("\n") == 1


def test_key_makes_the_login_key_once_and_prints_its_public_half(inventory: str, state: ClusterState) -> None:
    printed = run("key", "-i", inventory).strip()
    assert printed.startswith("ssh-ed25519 ")
    assert json.loads(run("key", "-i", inventory, "--json")) == {"public_key": printed}
    assert state.host_key.stat().st_mode & 0o777 == 0o600
