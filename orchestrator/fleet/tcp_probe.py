"""Whether a phone is on the network at all: told within two seconds, and without a login.

sshd counts connections that do not log in against this computer (PerSourcePenalties). So a port is asked first where
nothing listens: the phone's kernel refuses at once, and that is an answer, however busy the phone is. Only where
nobody refuses, as behind a firewall that swallows such questions, sshd's own port is asked.
"""

from __future__ import annotations

from orchestrator.fleet.network import Line
from orchestrator.inventory.model import Phone

CLOSED_PORT = 9
REFUSED_WITHIN_S = 0.6
OPEN_WITHIN_S = 1.5  # a packet that got lost is sent again after one second


def answers(network: Line, phone: Phone) -> bool:
    asked = ((CLOSED_PORT, REFUSED_WITHIN_S), (phone.ssh_port, OPEN_WITHIN_S))
    return any(_is_answered(network, str(phone.address), port, seconds) for port, seconds in asked)


def _is_answered(network: Line, address: str, port: int, seconds: float) -> bool:
    try:
        network.connect(address, port, seconds).close()
    except ConnectionError:
        return True
    except OSError:  # a time-out among them
        return False
    return True
