"""paramiko's transport with our choices: strong and cheap algorithms, bounded packets, no idle polling."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Any

from paramiko import SSHException, Transport
from paramiko.packet import Packetizer

MAX_PACKET = 256 * 1024  # OpenSSH's own limit; paramiko would believe a length of 4 GiB

# paramiko reports on its own to stderr what it also raises; a phone's failure is told once, by us.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class BoundedPacketizer(Packetizer):
    def read_all(self, n: int, check_rekey: bool = False) -> bytes:  # noqa: FBT001, FBT002  (paramiko's signature)
        if n > MAX_PACKET:
            raise SSHException(f"packet of {n} bytes")
        return super().read_all(n, check_rekey)

    def start_handshake(self, timeout: float) -> None:
        """Nothing: connecting has its own time limits, and paramiko would start a timer thread a phone for this."""


class PhoneTransport(Transport):
    _preferred_kex = tuple(
        kex
        for kex in ("mlkem768x25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
        if kex in Transport._kex_info  # type: ignore[attr-defined]  # noqa: SLF001  (what this paramiko has)
    )
    _preferred_ciphers = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr")
    _preferred_macs = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-256")
    # An idle transport wakes up this often: at paramiko's 0.1 s, 138 phones keep a core 5 % busy with nothing.
    # Closing does not wait for it: see `hang_up`.
    _active_check_timeout = 1.0

    def __init__(self, sock: socket.socket, **options: Any) -> None:
        super().__init__(sock, packetizer_class=BoundedPacketizer, **options)

    def hang_up(self) -> None:
        """Wakes the thread up, which then ends; a bare close would leave it waiting on a dead descriptor."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
