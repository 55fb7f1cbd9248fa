"""How this computer identifies itself to phones, which let only one computer supervise a run."""

from __future__ import annotations

import getpass
import hashlib
import socket
from functools import cache
from pathlib import Path

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


@cache
def host_identity() -> str:
    """Readable, and different on every computer."""
    machine = next((path.read_bytes() for path in _MACHINE_IDS if path.is_file()), b"")
    digest = hashlib.sha256(machine + socket.gethostname().encode()).hexdigest()[:8]
    return f"{getpass.getuser()}@{socket.gethostname()} ({digest})"
