"""The key that all phones share sends datasets, from the wired network; nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.fleet import ensure_keypair
from orchestrator.provision.resources import render_template
from orchestrator.provision.steps import keys
from phone_agent.contract.dataset_delivery import LOGIN_CHECK, RECEIVE_COMMAND
from tests.labs import TestLab
from tests.orchestrator.fleet.servers import Server, free_port, loopback_phone, start_server
from tests.orchestrator.provision.samples import desired_state
from tests.security.fuzz import fuzzed, tried

# As Open MPI 4.1 asks a neighbor to start its daemon, which runs what it is told.
ORTED = (
    ' orted --daemonize -mca ess "env" -mca ess_base_jobid "3548905472" -mca ess_base_vpid 1'
    ' -mca ess_base_num_procs "2" -mca orte_hnp_uri "3548905472.0;tcp://10.77.1.1:47515"'
)
REFUSED = 126


class Gate:
    """The script behind the key, with programs that only tell how they were called."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        programs = root / "bin"
        for folder in (self.home, programs):
            folder.mkdir()
        for name in ("orted", "python3", "id", "touch", "sh"):
            (programs / name).write_text(f'#!/bin/bash\nprintf "%s\\0" {name} "$@"\n')
            (programs / name).chmod(0o755)
        (programs / "bash").symlink_to("/bin/bash")
        self._script = render_template("ssh-gate.sh", RECEIVE=RECEIVE_COMMAND, LOGIN_CHECK=LOGIN_CHECK)
        self._environment = {"PATH": str(programs), "HOME": str(self.home), "LANG": os.environ.get("LANG", "C.UTF-8")}

    def ask(self, command: bytes) -> subprocess.CompletedProcess[bytes]:
        environment = {
            **{k.encode(): v.encode() for k, v in self._environment.items()},
            b"SSH_ORIGINAL_COMMAND": command,
        }
        return subprocess.run(
            ["/bin/bash", "-c", self._script], env=environment, cwd=self.home, capture_output=True, check=False
        )

    def called(self, command: str) -> list[str] | None:
        """Name and arguments of the program that ran; None when the gate stayed shut."""
        done = self.ask(command.encode("utf-8", "surrogateescape"))
        assert list(self.home.iterdir()) == [], "something was written"
        if done.returncode == REFUSED:
            assert done.stdout == b""
            return None
        return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    return Gate(tmp_path_factory.mktemp("gate"))


def test_datasets_are_taken(gate: Gate) -> None:
    assert gate.called(RECEIVE_COMMAND) == ["python3", "-m", "phone_agent", "data-receive"]


def test_a_login_can_be_checked(gate: Gate) -> None:
    assert gate.called(LOGIN_CHECK) == []


@pytest.mark.parametrize(
    "command",
    [
        "",
        "id",
        "bash -i",
        ORTED,
        "orted",
        "orted --help",
        "true; id",
        "true x",
        "*",
        f"{RECEIVE_COMMAND}; id",
        f"{RECEIVE_COMMAND} --more",
        f"id; {RECEIVE_COMMAND}",
        "PYTHONPATH=/sdcard exec python3 -m phone_agent data-receive",
        "internal-sftp",
        "scp -t .",
    ],
)
def test_everything_else_is_refused(gate: Gate, command: str) -> None:
    assert gate.called(command) is None


PIECES = st.sampled_from(
    [*"\"'`$;&|<>(){}[]*?!~#\\\n\t\r =^%-", "$(id)", "`id`", "; touch x", "orted", '"', "\u2028", "\udc80"]
)


@given(
    st.lists(
        PIECES | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6), max_size=8
    )
)
@example(["orted"])
@fuzzed(60)
def test_no_words_make_it_start_anything_else(gate: Gate, words: list[str]) -> None:
    for command in ("".join(words), RECEIVE_COMMAND + "".join(words), "".join(words) + LOGIN_CHECK):
        tried("the phones' key")
        if command not in {RECEIVE_COMMAND, LOGIN_CHECK}:
            assert gate.called(command) is None


@contextmanager
def phone_with(authorized: Path, root: Path) -> Iterator[Server]:
    server = start_server(root, loopback_phone(1, free_port(), switch=9), authorized)
    server.await_port()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize(("subnet", "may"), [("127.0.0.0/8", "yes"), ("10.77.0.0/16", "")])
def test_it_works_from_the_wired_network_only(tmp_path: Path, subnet: str, may: str) -> None:
    """A real sshd reads the line that provision writes."""
    key = tmp_path / "phones"
    public = ensure_keypair(key, "phones").read_text().strip()
    wanted = desired_state()
    wanted = replace(wanted, keys=replace(wanted.keys, phone_public=public))
    wanted = replace(wanted, cluster=replace(wanted.cluster, subnet=IPv4Network(subnet)))
    authorized = tmp_path / "authorized_keys"
    authorized.write_text(keys.authorized_lines("", wanted)[0] + "\n")
    with phone_with(authorized, tmp_path / "server") as server:
        address = f"{server.phone.user}@{server.phone.address}"
        options = (
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            f"UserKnownHostsFile={tmp_path}/known",
        )
        ssh = ("ssh", "-F", "none", *options, "-i", str(key), "-p", str(server.phone.ssh_port), address, "id")
        subprocess.run(ssh, capture_output=True, check=False)
        assert ("Accepted publickey" in server.log) is bool(may)
    assert ",restrict," in authorized.read_text()


@pytest.mark.lab
def test_on_phones_it_gives_no_shell_no_files_and_no_tunnel(provisioned_lab4: TestLab) -> None:
    """From one provisioned phone to the next, with everything ssh offers."""
    ask = """
    for command in id 'bash -i' 'cat .ssh/clusterctl_ed25519' ''; do
      ssh -p 8022 10.77.1.1 $command </dev/null && echo "OPEN $command"
    done
    scp -P 8022 .bashrc 10.77.1.1:copied && echo OPEN scp
    echo ls | sftp -b - -P 8022 10.77.1.1 && echo OPEN sftp
    ssh -p 8022 -o ClearAllForwardings=no -o ExitOnForwardFailure=yes -R 9999:127.0.0.1:8022 10.77.1.1 true
    ssh -tt -p 8022 10.77.1.1 true
    """
    done = provisioned_lab4.on("p1-02", "bash", "-c", ask, check=False)
    assert "OPEN" not in done.stdout
    assert done.stderr.count("may only send datasets") >= 4
    assert "remote port forwarding failed" in done.stderr
    assert "PTY allocation request failed" in done.stderr


@pytest.mark.lab
def test_mpirun_cannot_run_a_command_on_another_phone(provisioned_lab4: TestLab) -> None:
    """With the key of a stolen phone, from that phone."""
    attack = """
    timeout 20 mpirun --host 10.77.1.1 -np 1 --mca plm_rsh_agent 'ssh -p 8022 -o BatchMode=yes' \\
        --mca oob_tcp_if_include 10.77.0.0/16 bash -c 'touch ~/owned; echo OWNED'
    """
    done = provisioned_lab4.on("p1-02", "bash", "-c", attack, check=False)
    assert "may only send datasets" in done.stderr
    assert "OWNED" not in done.stdout
    assert provisioned_lab4.on("p1-01", "ls").stdout.count("owned") == 0
