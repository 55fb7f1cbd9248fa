"""Who is on the network at all, told without a login."""

from __future__ import annotations

import errno
import socket

import pytest

from orchestrator.fleet import Fleet
from orchestrator.fleet.network import DirectNetwork
from orchestrator.fleet.result import Phase, Status
from orchestrator.fleet.tcp_probe import CLOSED_PORT, is_reachable
from orchestrator.paths import ClusterState
from tests.orchestrator.fleet.servers import Server, loopback_phone

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
NO_ROUTE = OSError(errno.EHOSTUNREACH, "no route")
SILENCE = TimeoutError("timed out")


class Wire(DirectNetwork):
    """Ports answer as they are told to."""

    def __init__(self, closed: OSError, ssh: OSError | None) -> None:
        self._told = {CLOSED_PORT: closed}
        self._ssh = ssh
        self.asked: list[int] = []

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        self.asked.append(port)
        if error := self._told.get(port, self._ssh):
            raise error
        return socket.socket()


@pytest.mark.parametrize(
    ("closed", "ssh", "there"),
    [
        (REFUSED, SILENCE, True),
        (SILENCE, REFUSED, True),  # a firewall swallows the first question, and sshd is down
        (SILENCE, None, True),
        (SILENCE, SILENCE, False),
        (NO_ROUTE, NO_ROUTE, False),
    ],
)
def test_any_answer_counts(closed: OSError, ssh: OSError | None, there: bool) -> None:  # noqa: FBT001
    assert is_reachable(Wire(closed, ssh), loopback_phone(1, 8022)) is there


def test_sshd_is_left_alone_where_a_closed_port_answers() -> None:
    wire = Wire(REFUSED, None)
    assert is_reachable(wire, loopback_phone(1, 8022))
    assert wire.asked == [CLOSED_PORT], "a connection that does not log in counts against us"


def test_one_that_is_gone_is_not_dialled(rack: list[Server], state: ClusterState) -> None:
    phone = rack[0].phone
    with Fleet([phone], state, Wire(SILENCE, SILENCE), trust_new=True) as fleet:
        (outcome,) = fleet.map(lambda connection: connection.run(["true"]), probe_first=True)
    assert (outcome.status, outcome.phase, outcome.error) == (Status.UNREACHABLE, Phase.TCP, "not on the network")


def test_one_that_is_there_is_asked(fleet: Fleet) -> None:
    assert fleet.map(lambda connection: connection.run(["true"], check=True).rc, probe_first=True).ok
