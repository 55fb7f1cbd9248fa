"""Who this computer is, to phones that have to tell two of them apart."""

from __future__ import annotations

import getpass
import hashlib
import socket
from functools import cache
from pathlib import Path

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


@cache
def holder() -> str:
    """Readable, and another one on every computer."""
    machine = next((path.read_bytes() for path in _MACHINE_IDS if path.is_file()), b"")
    digest = hashlib.sha256(machine + socket.gethostname().encode()).hexdigest()[:8]
    return f"{getpass.getuser()}@{socket.gethostname()} ({digest})"
