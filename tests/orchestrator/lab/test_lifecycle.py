"""`lab up` and `lab down`."""

from __future__ import annotations

import os
import pty
import subprocess
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.lab import ipc, programs
from orchestrator.lab.client import lab_status
from orchestrator.lab.config import Arch
from orchestrator.lab.spec import Mode
from orchestrator.paths import ClusterState
from orchestrator.process_lock import holder
from orchestrator.records.record import RunStore
from tests.labs import CLUSTERCTL, TestLab, running_lab
from tests.orchestrator.supervisor.samples import SPEC

pytestmark = pytest.mark.lab


@pytest.fixture
def no_lab(tmp_path: Path) -> TestLab:
    return TestLab(tmp_path / "state")


def test_up_with_the_same_config_changes_nothing(any_lab: TestLab) -> None:
    daemon = holder(any_lab.directory / "daemon.lock")
    done = any_lab.clusterctl("lab", "up", "--phones", "3", "--switches", "2")
    assert "already running" in done.stderr
    assert holder(any_lab.directory / "daemon.lock") == daemon


def test_a_client_that_is_stopped_before_its_request_does_not_block_others(loopback_lab: TestLab) -> None:
    with ipc.connect(loopback_lab.directory) as stopped, ThreadPoolExecutor(1) as other:
        waiting = other.submit(lab_status, loopback_lab.directory)
        finished, _ = wait([waiting], timeout=20)
        ipc.send(stopped, {"op": "status"})  # continues; also ends the other request if it had to wait
        assert len(ipc.receive(stopped)[0]["phones"]) == 3
    assert finished == {waiting}


@pytest.mark.parametrize("flag", [("--phones", "4"), ("--rate", "100mbit"), ("--disk", "2g")])
def test_up_with_another_config_is_rejected(loopback_lab: TestLab, flag: tuple[str, str]) -> None:
    config = {"--phones": "3", "--switches": "2"} | dict([flag])
    done = loopback_lab.clusterctl("lab", "up", *(word for pair in config.items() for word in pair), check=False)
    assert done.returncode == 2
    assert "clusterctl lab down" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--phones", "0"),
        ("--phones", "201"),
        ("--phones", "1", "--switches", "2"),
        ("--switches", "99"),
        ("--rate", "fast"),
        ("--uplink", "0mbit"),
        ("--disk", "3k"),
    ],
)
def test_invalid_flags_are_rejected_before_anything_is_created(no_lab: TestLab, arguments: tuple[str, ...]) -> None:
    done = no_lab.clusterctl("lab", "up", *arguments, check=False)
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert not no_lab.state.exists()


def test_missing_programs_are_reported_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_program", lambda name: None if name in {"tc", "sshd"} else f"/usr/bin/{name}")
    with pytest.raises(UsageError, match="iproute2, openssh-server") as caught:
        programs.check_programs(Arch.NATIVE)
    assert "make setup" in str(caught.value.remedy)


def test_commands_without_a_lab_suggest_lab_up(no_lab: TestLab) -> None:
    for command in (("status",), ("exec", "p1-01", "--", "true"), ("enter", "--", "true"), ("set", "p1-01", "link=up")):
        done = no_lab.clusterctl("lab", *command, check=False)
        assert done.returncode == 2
        assert "clusterctl lab up" in done.stderr


def test_down_without_a_lab_succeeds(no_lab: TestLab) -> None:
    assert no_lab.clusterctl("lab", "down").returncode == 0
    assert not no_lab.state.exists()


def test_up_keeps_the_cluster_key_and_forgets_host_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster key belongs to the host; pinned host keys belong to phones that no longer exist."""
    with running_lab(1) as lab:
        monkeypatch.setenv("CLUSTERCTL_STATE", str(lab.state))
        state = ClusterState("lab")
        key = state.host_key.read_bytes()
        assert state.host_key.stat().st_mode & 0o777 == 0o600
        state.known_hosts.write_text("[10.77.1.1]:8022 ssh-ed25519 AAAA\n")
        lab.clusterctl("lab", "down")
        assert [entry.name for entry in lab.state.iterdir()] == ["clusters"]
        lab.clusterctl("lab", "up", "--phones", "1")
        assert state.host_key.read_bytes() == key
        assert not state.known_hosts.exists()


def test_other_users_cannot_connect_to_the_daemon(any_lab: TestLab) -> None:
    assert (any_lab.directory / "daemon.sock").stat().st_mode & 0o077 == 0
    assert any_lab.directory.stat().st_mode & 0o077 == 0


def test_down_asks_while_a_run_is_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_lab(1, mode=Mode.LOOPBACK) as lab:
        monkeypatch.setenv("CLUSTERCTL_STATE", str(lab.state))
        store = RunStore(ClusterState("lab").runs)
        record = replace(store.create(SPEC), state="running", step=7)
        store.save(record)
        refused = lab.clusterctl("lab", "down", check=False)
        assert refused.returncode == 2
        assert f"{record.run_id} is running at step 7 of {record.steps}" in " ".join(refused.stderr.split())
        assert "clusterctl lab down --force" in " ".join(refused.stderr.split())
        assert _down_with_answer(lab, "n") == 1
        assert lab.phone("p1-01")["up"]
        assert store.read(record.run_id).state == "running"
        assert _down_with_answer(lab, "y") == 0
        assert not lab.directory.exists()
        assert store.read(record.run_id).state == "stopped"


def test_down_with_force_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_lab(1, mode=Mode.LOOPBACK) as lab:
        monkeypatch.setenv("CLUSTERCTL_STATE", str(lab.state))
        store = RunStore(ClusterState("lab").runs)
        record = store.create(SPEC)
        lab.clusterctl("lab", "down", "--force")
        assert not lab.directory.exists()
        assert store.read(record.run_id).state == "stopped"


def _down_with_answer(lab: TestLab, answer: str) -> int:
    """Answers the question of `lab down` on a terminal."""
    terminal, its_end = pty.openpty()
    try:
        process = subprocess.Popen(
            [*CLUSTERCTL, "lab", "down"], env=lab.environment, stdin=its_end, stdout=its_end, stderr=its_end
        )
        os.write(terminal, f"{answer}\n".encode())
        return process.wait()
    finally:
        os.close(terminal)
        os.close(its_end)
