"""A paramiko transport with fast, strong algorithms, bounded packets and little idle polling."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Any

from paramiko import SSHException, Transport
from paramiko.packet import Packetizer

MAX_PACKET = 256 * 1024  # the limit of OpenSSH; paramiko would accept a length of 4 GiB

# paramiko also logs to stderr what it raises; report each failure only once.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class BoundedPacketizer(Packetizer):
    def read_all(self, n: int, check_rekey: bool = False) -> bytes:  # noqa: FBT001, FBT002  (paramiko's signature)
        if n > MAX_PACKET:
            raise SSHException(f"packet of {n} bytes")
        return super().read_all(n, check_rekey)

    def start_handshake(self, timeout: float) -> None:
        """Do nothing: connecting has its own time-outs, and paramiko would start a timer thread per phone."""


class PhoneTransport(Transport):
    _preferred_kex = tuple(
        kex
        for kex in ("mlkem768x25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
        if kex in Transport._kex_info  # type: ignore[attr-defined]  # noqa: SLF001  (what this paramiko has)
    )
    _preferred_ciphers = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr")
    _preferred_macs = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-256")
    # Polling interval of an idle transport: with the default of 0.1 s, 138 idle phones use 5 % of a core.
    # Closing does not wait for it: see `abort`.
    _active_check_timeout = 1.0

    def __init__(self, sock: socket.socket, **options: Any) -> None:
        super().__init__(sock, packetizer_class=BoundedPacketizer, **options)

    def abort(self) -> None:
        """Wake the reader thread so that it ends; a plain close would leave it waiting on a dead descriptor."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
