"""Where sockets to the wired network come from.

On a real rack this computer is plugged into the switches and plain sockets do. The lab's switches live in a
network namespace of their own; `orchestrator.lab.network` hands out sockets made in there. Everything above
this seam is the same for both.
"""

from __future__ import annotations

import socket
from typing import Protocol


class Line(Protocol):
    """A way to call phones: all that an SSH connection needs."""

    @property
    def slowness(self) -> float:
        """How much longer than a real phone the phones on it take for everything: 1, unless they are emulated."""
        ...

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        """A connected TCP socket. Raises OSError (TimeoutError included) as `socket.create_connection` does."""
        ...


class Network(Line, Protocol):
    """One on which phones can call this computer as well."""

    def listen(self, address: str, port: int) -> socket.socket:
        """A listening TCP socket; port 0 lets the kernel choose."""
        ...

    def source_address(self, towards: str) -> str:
        """The address of this computer that `towards` sees."""
        ...


class DirectNetwork:
    slowness = 1.0

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        return socket.create_connection((address, port), timeout=timeout)

    def listen(self, address: str, port: int) -> socket.socket:
        return socket.create_server((address, port))

    def source_address(self, towards: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((towards, 9))  # UDP connect sends nothing: it only asks the routing table
            return str(probe.getsockname()[0])
