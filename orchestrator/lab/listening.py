"""Whether a phone's sshd listens, without connecting: an sshd punishes those who knock and run away."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from orchestrator.lab.spec import SSH_PORT

_LISTEN = "0A"


def is_listening(pid: int, address: str) -> bool:
    """Looks into the socket table of the network namespace that process `pid` is in."""
    (number,) = struct.unpack("=I", socket.inet_aton(address))
    wanted = {f"{number:08X}:{SSH_PORT:04X}", f"00000000:{SSH_PORT:04X}"}
    try:
        rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return False
    return any(row.split()[1] in wanted and row.split()[3] == _LISTEN for row in rows)
