"""Every way not to reach a phone says how far it got and what to do."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet import Fleet, HostKeys, Timeouts, ensure_keypair
from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.network import DirectNetwork
from orchestrator.fleet.result import CommandResult, Outcome, Status
from orchestrator.inventory.model import Phone
from orchestrator.paths import ClusterState
from tests.orchestrator.fleet.servers import Server, free_port, loopback_phone, prepare, sshd, start_server

DEFAULT = Timeouts()
HOLD = b"<hold the line>"


def attempt(
    phone: Phone, state: ClusterState, *, trust_new: bool = True, timeouts: Timeouts = DEFAULT
) -> Outcome[CommandResult]:
    with Fleet([phone], state, DirectNetwork(), trust_new=trust_new, timeouts=timeouts) as fleet:
        return fleet.map(lambda connection: connection.run(["true"])).items[0]


def test_nothing_listens(state: ClusterState) -> None:
    outcome = attempt(loopback_phone(1, free_port(), switch=2), state)
    assert (outcome.status, outcome.phase) == (Status.UNREACHABLE, "tcp")
    assert outcome.error is not None
    assert outcome.error.startswith("connection refused on port")
    assert outcome.remedy is not None
    assert "sshd" in outcome.remedy


def test_no_answer_at_all(state: ClusterState) -> None:
    """A full backlog drops SYNs, as a phone with its cable pulled does."""
    phone = loopback_phone(2, free_port(), switch=2)
    address = (str(phone.address), phone.ssh_port)
    with socket.create_server(address, backlog=0), closing(socket.create_connection(address)):
        outcome = attempt(phone, state, timeouts=Timeouts(tcp=0.2))
    assert (outcome.status, outcome.phase, outcome.error) == (Status.UNREACHABLE, "tcp", "no answer within 0.2 s")
    assert phone.where in str(outcome.remedy)


@pytest.mark.parametrize(
    ("says", "message", "phase"),
    [
        (HOLD, "no SSH banner within 0.5 s", "banner"),
        (b"SSH-2.0-odd\r\n" + HOLD, "key exchange failed: timed out after 0.5 s", "kex"),
        (b"", "closed before the SSH banner", "banner"),
        (b"Exceeded MaxStartups\r\n", "closed before the SSH banner (too many", "banner"),
        (b"Not allowed at this time\r\n", "temporarily refuses this computer", "banner"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not an SSH server: it sent 'HTTP/1.1", "banner"),
        (b"SSH-2.0-odd\r\n\xff\xff\xff\xff" + b"\xff" * 100, "key exchange failed", "kex"),
        (b"SSH-1.0-\x1b[2J\r\n", "key exchange failed", "kex"),
        (b"SSH-2.0-odd\r\n", "key exchange failed", "kex"),
    ],
)
def test_a_server_that_is_not_an_sshd(state: ClusterState, says: bytes, message: str, phase: str) -> None:
    phone = loopback_phone(3, free_port(), switch=2)
    with answering(phone, says):
        outcome = attempt(phone, state, timeouts=Timeouts(banner=0.5, kex=0.5) if says.endswith(HOLD) else DEFAULT)
    assert (outcome.status, outcome.phase) == (Status.UNREACHABLE, phase)
    assert message in str(outcome.error)
    assert str(outcome.error).isprintable()
    assert outcome.remedy


@contextmanager
def answering(phone: Phone, says: bytes) -> Iterator[None]:
    """Accepts every connection, says its one thing and hangs up, or holds the line."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            with suppress(OSError):  # they may have left already
                connection.sendall(says.removesuffix(HOLD))
                if not says.endswith(HOLD):
                    connection.shutdown(socket.SHUT_WR)

    held: list[socket.socket] = []
    with socket.create_server((str(phone.address), phone.ssh_port)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    for connection in held:
        connection.close()


@pytest.fixture
def stranger(tmp_path: Path, state: ClusterState) -> Iterator[Server]:
    """A phone that has never heard of this computer's key."""
    authorized = ensure_keypair(tmp_path / "someone", "someone else")
    server = start_server(tmp_path / "stranger", loopback_phone(4, free_port(), switch=2), authorized)
    server.await_port()
    yield server
    server.stop()


def test_a_refused_key_is_not_tried_again(stranger: Server, state: ClusterState) -> None:
    outcome = attempt(stranger.phone, state)
    assert (outcome.status, outcome.phase) == (Status.UNREACHABLE, "auth")
    assert "does not accept our key" in str(outcome.error)
    assert f"{state.host_key}.pub" in str(outcome.remedy)
    assert stranger.log.count("Connection from") == 1


def test_a_connection_cut_before_the_banner_is_tried_again(tmp_path: Path, state: ClusterState) -> None:
    phone = loopback_phone(5, free_port(), switch=2)
    prepare(tmp_path / "flaky", phone, Path(f"{state.host_key}.pub"))
    with socket.create_server((str(phone.address), phone.ssh_port)) as listener:
        thread = threading.Thread(target=serve_the_second, args=(listener, tmp_path / "flaky"))
        thread.start()
        outcome = attempt(phone, state)
        thread.join()
    assert outcome.ok, outcome.error


def serve_the_second(listener: socket.socket, root: Path) -> None:
    listener.accept()[0].close()
    connection, _ = listener.accept()
    with connection, (root / "sshd.log").open("wb") as log:
        command = [sshd(), "-i", "-e", "-f", str(root / "sshd_config")]
        line = connection.fileno()
        subprocess.run(command, stdin=line, stdout=line, stderr=log, check=False)


def test_an_unknown_host_key_is_refused_unless_meeting_is_the_purpose(server: Server, state: ClusterState) -> None:
    before = server.log.count("Connection from")
    refused = attempt(server.phone, state, trust_new=False)
    assert server.log.count("Connection from") == before, "it would not have logged in"
    assert (refused.status, refused.phase) == (Status.FAILED, "hostkey")
    assert refused.remedy == f"clusterctl provision --limit {server.phone.name}"
    assert attempt(server.phone, state, trust_new=True).ok
    assert attempt(server.phone, state, trust_new=False).ok


def test_openssh_reads_the_pinned_keys(server: Server, state: ClusterState) -> None:
    assert attempt(server.phone, state).ok
    assert state.known_hosts.stat().st_mode & 0o777 == 0o600
    options = [
        "-o",
        f"UserKnownHostsFile={state.known_hosts}",
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        "BatchMode=yes",
    ]
    destination = ["-p", str(server.phone.ssh_port), str(server.phone.address)]
    done = subprocess.run(
        ["ssh", "-F", "none", "-i", state.host_key, *options, *destination, "echo met"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "met\n", done.stderr


@pytest.mark.parametrize("trust_new", [True, False])
def test_a_changed_host_key_is_refused_with_the_way_out(
    server: Server, state: ClusterState, tmp_path: Path, *, trust_new: bool
) -> None:
    other = ensure_keypair(tmp_path / "other", "another host key").read_text().split()
    hosts = HostKeys(state.known_hosts)
    hosts.accept(server.phone, HostKey(other[0], other[1]))
    outcome = attempt(server.phone, state, trust_new=trust_new)
    assert (outcome.status, outcome.phase) == (Status.FAILED, "hostkey")
    assert HostKey(other[0], other[1]).fingerprint in str(outcome.error)
    assert outcome.remedy == f"clusterctl hosts forget {server.phone.name}"
    assert hosts.forget([server.phone]) == (server.phone,)
    assert attempt(server.phone, state).ok


def test_cloned_phones_are_named_both(server: Server, state: ClusterState, tmp_path: Path) -> None:
    clone = start_server(
        tmp_path / "clone",
        loopback_phone(6, free_port(), switch=2),
        Path(f"{state.host_key}.pub"),
        host_key=server.root / "host_key",
    )
    clone.await_port()
    phones = [server.phone, clone.phone]
    with Fleet(phones, state, DirectNetwork(), trust_new=True) as fleet:
        outcomes = fleet.map(lambda connection: connection.run(["true"]))
    clone.stop()
    (failed,) = outcomes.failures
    (other,) = {server.phone, clone.phone} - {failed.phone}
    assert (failed.status, failed.phase) == (Status.FAILED, "hostkey")
    assert f"same host key as {other.name} {other.where}" in str(failed.error)


def test_a_clone_pinned_by_hand_is_still_refused(server: Server, state: ClusterState) -> None:
    assert attempt(server.phone, state).ok
    _, kind, blob, *_ = state.known_hosts.read_text().split()
    twin = loopback_phone(7, server.phone.ssh_port, switch=2)
    with state.known_hosts.open("a") as file:
        file.write(f"[{twin.address}]:{twin.ssh_port} {kind} {blob}\n")
    with Fleet([server.phone], state, DirectNetwork()) as fleet, pytest.raises(PhoneError, match="same host key"):
        fleet.connection(server.phone)


@pytest.mark.parametrize("line", ["ssh-ed25519 AAAA", "ssh-ed25519 A", "ssh-unheard-of AAAA"])
def test_a_damaged_pin_is_refused_with_the_way_out(server: Server, state: ClusterState, line: str) -> None:
    state.known_hosts.write_text(f"[{server.phone.address}]:{server.phone.ssh_port} {line}\n")
    outcome = attempt(server.phone, state)
    assert (outcome.status, outcome.phase) == (Status.FAILED, "hostkey")
    assert outcome.remedy == f"clusterctl hosts forget {server.phone.name}"
