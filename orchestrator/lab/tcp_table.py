"""Check whether sshd listens by reading the TCP socket table. Connecting without a login would cause sshd penalties."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from orchestrator.lab.spec import SSH_PORT

_LISTEN = "0A"


def is_listening(pid: int, address: str) -> bool:
    """Whether port 8022 is open in the network namespace of process `pid`."""
    (number,) = struct.unpack("=I", socket.inet_aton(address))
    sockets = {f"{number:08X}:{SSH_PORT:04X}", f"00000000:{SSH_PORT:04X}"}
    try:
        rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return False
    return any(row.split()[1] in sockets and row.split()[3] == _LISTEN for row in rows)
