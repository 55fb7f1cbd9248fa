"""How this computer opens sockets to the wired network.

On a real rack this computer is connected to the switches and plain sockets work. The switches of a lab are in their own
network namespace; `orchestrator.lab.network` creates sockets there. Code above this interface is the same for both.
"""

from __future__ import annotations

import socket
from typing import Protocol


class Dialer(Protocol):
    """Opens TCP connections to phones."""

    @property
    def time_scale(self) -> float:
        """Factor by which these phones are slower than real ones: 1, unless they are emulated."""
        ...

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        """A connected TCP socket. Raises OSError (TimeoutError included) as `socket.create_connection` does."""
        ...


class Network(Dialer, Protocol):
    """A network on which phones can also connect to this computer."""

    def listen(self, address: str, port: int) -> socket.socket:
        """A listening TCP socket; port 0 lets the kernel choose."""
        ...

    def source_address(self, towards: str) -> str:
        """The address of this computer that `towards` sees."""
        ...


class DirectNetwork:
    time_scale = 1.0

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        return socket.create_connection((address, port), timeout=timeout)

    def listen(self, address: str, port: int) -> socket.socket:
        return socket.create_server((address, port))

    def source_address(self, towards: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((towards, 9))  # a UDP connect sends no packet; it only consults the routing table
            return str(probe.getsockname()[0])
