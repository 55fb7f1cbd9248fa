"""Check within two seconds whether a phone is on the network, without logging in.

sshd penalizes connections that do not log in (PerSourcePenalties). So probe a closed port first: the kernel refuses the
connection at once, however busy the phone is. Probe the port of sshd only if nothing refuses, for example
behind a firewall that drops such packets.
"""

from __future__ import annotations

from orchestrator.fleet.network import Dialer
from orchestrator.inventory.model import Phone

CLOSED_PORT = 9
REFUSED_WITHIN_S = 0.6
OPEN_WITHIN_S = 1.5  # a lost packet is retransmitted after one second


def is_reachable(network: Dialer, phone: Phone) -> bool:
    probes = ((CLOSED_PORT, REFUSED_WITHIN_S), (phone.ssh_port, OPEN_WITHIN_S))
    return any(_responds(network, str(phone.address), port, seconds) for port, seconds in probes)


def _responds(network: Dialer, address: str, port: int, seconds: float) -> bool:
    try:
        network.connect(address, port, seconds).close()
    except ConnectionError:
        return True
    except OSError:  # including time-outs
        return False
    return True
