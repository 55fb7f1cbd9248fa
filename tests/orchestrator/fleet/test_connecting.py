"""Every way not to reach a phone says how far it got and what to do."""

from __future__ import annotations

import errno
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet import Fleet, HostKeys, PhoneConnection, Timeouts, ensure_keypair
from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.network import DirectNetwork
from orchestrator.fleet.result import CommandResult, Outcome, Status
from orchestrator.inventory.model import Phone
from orchestrator.paths import ClusterState
from phone_agent.contract.errors import ErrorCode
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
    assert outcome.code is ErrorCode.CONNECTION_REFUSED
    assert outcome.remedy is not None
    assert "sshd" in outcome.remedy


def test_no_answer_at_all(state: ClusterState) -> None:
    """A full backlog drops SYNs, as a phone with its cable pulled does."""
    phone = loopback_phone(2, free_port(), switch=2)
    address = (str(phone.address), phone.ssh_port)
    with socket.create_server(address, backlog=0), closing(socket.create_connection(address)):
        outcome = attempt(phone, state, timeouts=Timeouts(tcp=0.2))
    assert (outcome.status, outcome.phase, outcome.error) == (Status.UNREACHABLE, "tcp", "no answer within 0.2 s")
    assert outcome.code is ErrorCode.NO_ANSWER
    assert phone.where in str(outcome.remedy)


@pytest.mark.parametrize(
    ("says", "code", "phase"),
    [
        (HOLD, ErrorCode.NO_BANNER, "banner"),
        (b"SSH-2.0-odd\r\n" + HOLD, ErrorCode.TIMED_OUT, "kex"),
        (b"", ErrorCode.CONNECTION_CLOSED, "banner"),
        (b"Exceeded MaxStartups\r\n", ErrorCode.CONNECTION_CLOSED, "banner"),
        (b"Not allowed at this time\r\n", ErrorCode.SSH_PENALTY, "banner"),
        (b"HTTP/1.1 400 Bad Request\r\n", ErrorCode.NOT_SSH, "banner"),
        (b"SSH-2.0-odd\r\n\xff\xff\xff\xff" + b"\xff" * 100, ErrorCode.KEY_EXCHANGE_FAILED, "kex"),
        (b"SSH-1.0-\x1b[2J\r\n", ErrorCode.KEY_EXCHANGE_FAILED, "kex"),
        (b"SSH-2.0-odd\r\n", ErrorCode.KEY_EXCHANGE_FAILED, "kex"),
    ],
)
def test_a_server_that_is_not_an_sshd(state: ClusterState, says: bytes, code: ErrorCode, phase: str) -> None:
    phone = loopback_phone(3, free_port(), switch=2)
    with answering(phone, says):
        outcome = attempt(phone, state, timeouts=Timeouts(banner=0.5, kex=0.5) if says.endswith(HOLD) else DEFAULT)
    assert (outcome.status, outcome.phase, outcome.code) == (Status.UNREACHABLE, phase, code)
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
    assert outcome.code is ErrorCode.AUTH_FAILED
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
    assert refused.code is ErrorCode.HOST_KEY_UNKNOWN
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
    assert outcome.code is ErrorCode.HOST_KEY_CHANGED
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
    assert failed.code is ErrorCode.HOST_KEY_DUPLICATE
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
    assert outcome.code is ErrorCode.HOST_KEY_UNREADABLE


class Broken(DirectNetwork):
    """A network of this computer that fails with one error."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        raise self.error


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EHOSTUNREACH, ErrorCode.NO_ROUTE),
        (errno.EMFILE, ErrorCode.TOO_MANY_OPEN_FILES),
        (errno.EPERM, ErrorCode.CONNECT_FAILED),
    ],
)
def test_what_the_operating_system_refuses(state: ClusterState, number: int, code: ErrorCode) -> None:
    phone = loopback_phone(8, free_port(), switch=2)
    with Fleet([phone], state, Broken(OSError(number, "refused")), trust_new=True) as fleet:
        (outcome,) = fleet.map(lambda connection: connection.run(["true"]))
    assert (outcome.status, outcome.phase, outcome.code) == (Status.UNREACHABLE, "tcp", code)


def test_a_connection_that_is_lost_under_a_command(server: Server, state: ClusterState) -> None:
    def work(connection: PhoneConnection) -> CommandResult:
        threading.Timer(0.3, connection.abort).start()
        return connection.run(["sleep", "5"])

    with Fleet([server.phone], state, DirectNetwork(), trust_new=True) as fleet:
        (outcome,) = fleet.map(work)
    assert (outcome.status, outcome.code) == (Status.UNREACHABLE, ErrorCode.CONNECTION_LOST)


def test_a_fleet_that_is_closed_connects_no_more(server: Server, state: ClusterState) -> None:
    with Fleet([server.phone], state, DirectNetwork(), trust_new=True) as fleet:
        fleet.close()
        (outcome,) = fleet.map(lambda connection: connection.run(["true"]))
    assert (outcome.status, outcome.code) == (Status.UNREACHABLE, ErrorCode.CANCELLED)
