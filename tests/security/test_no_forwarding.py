"""This computer's agent stays here, and a phone's sshd carries commands, not connections."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.fleet import Fleet
from orchestrator.fleet.network import DirectNetwork
from orchestrator.paths import ClusterState
from orchestrator.provision.resources import read_text
from tests.orchestrator.fleet.servers import Server, sshd


@pytest.fixture
def agent(tmp_path: Path, login_key: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh-agent with the very key in it, as a person may have one running."""
    socket = tmp_path / "agent"
    running = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    for _ in range(200):
        if subprocess.run(["ssh-add", "-q", str(login_key)], capture_output=True, check=False).returncode == 0:
            break
    yield socket
    running.terminate()
    running.wait(10)


def test_no_agent_is_forwarded_though_the_phone_would_take_it(agent: Path, server: Server, state: ClusterState) -> None:
    assert agent.exists()
    with Fleet([server.phone], state, DirectNetwork(), trust_new=True) as fleet:
        told = fleet.connection(server.phone).run(["bash", "-c", 'echo "${SSH_AUTH_SOCK-none}"']).stdout
    assert told == "none\n"


def test_a_phones_sshd_forwards_nothing_and_takes_no_password(tmp_path: Path) -> None:
    config = tmp_path / "sshd_config"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    config.write_text(f"HostKey {tmp_path}/key\n{read_text('sshd_config')}")
    done = subprocess.run([sshd(), "-T", "-f", str(config)], capture_output=True, text=True, check=True)
    settings = done.stdout.lower().splitlines()
    for wanted in ("disableforwarding yes", "passwordauthentication no", "kbdinteractiveauthentication no"):
        assert wanted in settings
