"""Whatever answers at a phone's address must prove that it is the phone; nothing is sent to anything else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.fleet import Fleet, ensure_keypair
from orchestrator.fleet.network import DirectNetwork
from orchestrator.fleet.result import CommandResult, Outcome, Status
from orchestrator.inventory.model import Phone
from orchestrator.paths import ClusterState
from orchestrator.provision.steps import keys
from tests.orchestrator.fleet.servers import Server, loopback_phone, start_server
from tests.orchestrator.provision.samples import desired_state


def attempt(phone: Phone, state: ClusterState, *, trust_new: bool = False) -> Outcome[CommandResult]:
    with Fleet([phone], state, DirectNetwork(), trust_new=trust_new) as fleet:
        return fleet.map(lambda connection: connection.run(["touch", "commanded"])).items[0]


def test_a_phone_nobody_has_met_is_not_spoken_to(server: Server, state: ClusterState) -> None:
    outcome = attempt(server.phone, state)
    assert (outcome.status, outcome.phase) == (Status.FAILED, "hostkey")
    assert "Connection from" not in server.log


def test_an_impostor_gets_neither_a_command_nor_a_login(
    server: Server, state: ClusterState, tmp_path: Path, login_key: Path
) -> None:
    assert attempt(server.phone, state, trust_new=True).ok
    server.stop()
    impostor = start_server(tmp_path / "impostor", server.phone, Path(f"{login_key}.pub"))
    impostor.await_port()
    try:
        outcome = attempt(server.phone, state, trust_new=True)
        assert (outcome.status, outcome.phase) == (Status.FAILED, "hostkey")
        assert "host key changed" in str(outcome.error)
        assert "Accepted publickey" not in impostor.log
        assert not (impostor.home / "commanded").exists()
    finally:
        impostor.stop()


def test_a_stolen_host_key_does_not_serve_for_two_phones(
    server: Server, state: ClusterState, tmp_path: Path, login_key: Path
) -> None:
    assert attempt(server.phone, state, trust_new=True).ok
    other = loopback_phone(2, server.phone.ssh_port, switch=9)
    thief = start_server(tmp_path / "thief", other, Path(f"{login_key}.pub"), server.root / "host_key")
    thief.await_port()
    try:
        outcome = attempt(other, state, trust_new=True)
        assert "same host key" in str(outcome.error)
        assert not (thief.home / "commanded").exists()
    finally:
        thief.stop()


@pytest.fixture
def phones_ssh_config(tmp_path: Path) -> list[str]:
    """What ssh makes of the settings that phones get for each other."""
    config = tmp_path / "config"
    config.write_text("\n".join(keys.config_lines(desired_state())) + "\n")
    address = str(next(iter(desired_state().cluster)).address)
    done = subprocess.run(["ssh", "-G", "-F", str(config), address], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_phones_know_each_other_by_pinned_keys_only(phones_ssh_config: list[str]) -> None:
    assert "stricthostkeychecking true" in phones_ssh_config
    (known_hosts,) = [line for line in phones_ssh_config if line.startswith("userknownhostsfile ")]
    assert known_hosts.endswith("/.ssh/clusterctl_known_hosts")
    assert "globalknownhostsfile none" in phones_ssh_config
    assert "batchmode yes" in phones_ssh_config
    assert "identitiesonly yes" in phones_ssh_config


def test_phones_forward_nothing_to_each_other(phones_ssh_config: list[str]) -> None:
    assert "forwardagent no" in phones_ssh_config
    assert "clearallforwardings yes" in phones_ssh_config


def test_private_keys_are_their_owners_alone(tmp_path: Path) -> None:
    key = tmp_path / "state" / "id_ed25519"
    ensure_keypair(key, "test")
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
