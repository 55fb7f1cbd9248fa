"""Phones that are not where the inventory says: looked for by their host keys at the addresses around.

A port is not merely probed: who shows the key of a missing phone is logged in to, so that sshd counts nothing against
this computer. Addresses of other phones of the inventory are left alone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Final

from paramiko import SSHException

from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.network import Dialer
from orchestrator.fleet.transport import PhoneTransport
from orchestrator.inventory.model import Cluster, Phone

if TYPE_CHECKING:
    from paramiko import PKey

SWEEP_LIMIT_S: Final = 15.0
_WORKERS: Final = 128
_KNOCK_S: Final = 1.0
_HANDSHAKE_S: Final = 5.0
_AROUND: Final = 24  # prefix length: addresses that differ in the last byte
_BLOCK: Final = 256


def find_missing(
    missing: dict[HostKey, Phone], cluster: Cluster, network: Dialer, login: PKey
) -> dict[Phone, IPv4Address]:
    """Where the phones with these keys answer. Ends after SWEEP_LIMIT_S, whatever it found."""
    waiting: queue.SimpleQueue[tuple[IPv4Address, Phone]] = queue.SimpleQueue()
    for candidate in candidates(tuple(missing.values()), cluster):
        waiting.put(candidate)
    found: dict[Phone, IPv4Address] = {}
    deadline = time.monotonic() + SWEEP_LIMIT_S

    def work() -> None:
        while time.monotonic() < deadline and len(found) < len(missing):
            try:
                address, like = waiting.get_nowait()
            except queue.Empty:
                return
            key = _key_at(network, str(address), like, set(missing), login)
            if key is not None:
                found[missing[key]] = address

    threads = [threading.Thread(target=work, daemon=True) for _ in range(_WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(found)


def candidates(missing: Sequence[Phone], cluster: Cluster) -> list[tuple[IPv4Address, Phone]]:
    """Addresses nobody has in the inventory: around each missing phone, the nearest first; then its place elsewhere."""
    taken = {phone.address for phone in cluster} | ({cluster.host} if cluster.host else set())
    nearest: dict[IPv4Address, tuple[int, Phone]] = {}
    for phone in missing:
        for distance, address in (*_around(phone, cluster.subnet), *_same_place(phone, cluster.subnet)):
            if address not in taken and (address not in nearest or distance < nearest[address][0]):
                nearest[address] = (distance, phone)
    return [(address, phone) for address, (_, phone) in sorted(nearest.items(), key=lambda item: item[1][0])]


def _around(phone: Phone, subnet: IPv4Network) -> Iterator[tuple[int, IPv4Address]]:
    near = IPv4Network((phone.address, max(_AROUND, subnet.prefixlen)), strict=False)
    return ((abs(int(address) - int(phone.address)), address) for address in near.hosts())


def _same_place(phone: Phone, subnet: IPv4Network) -> Iterator[tuple[int, IPv4Address]]:
    """The same last byte in the other blocks of 256: the server that gives out addresses was set up otherwise."""
    blocks = range(int(subnet.network_address), int(subnet.broadcast_address), _BLOCK)
    own = int(phone.address) % _BLOCK
    return ((_BLOCK + index, IPv4Address(block + own)) for index, block in enumerate(blocks[:_BLOCK]))


def _key_at(network: Dialer, address: str, like: Phone, wanted: set[HostKey], login: PKey) -> HostKey | None:
    """The key that answers there, if it is one of those wanted."""
    try:
        sock = network.connect(address, like.ssh_port, _KNOCK_S)
    except OSError:
        return None
    transport = PhoneTransport(sock)
    try:
        transport.banner_timeout = _HANDSHAKE_S
        transport.start_client(timeout=_HANDSHAKE_S)
        shown = transport.get_remote_server_key()
        key = HostKey(shown.get_name(), shown.get_base64())
        if key not in wanted:
            return None
        with suppress(SSHException):  # it is the phone, even if it does not let us in
            transport.auth_publickey(like.user, login)
    except (SSHException, EOFError, OSError):
        return None
    else:
        return key
    finally:
        transport.abort()
        transport.close()
