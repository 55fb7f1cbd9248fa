"""Search for phones at other addresses than the inventory has, by their host keys.

A host that presents the key of a missing phone is also logged in to, because sshd penalizes connections that do not log
in. Addresses of other phones of the inventory are not scanned.
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

SCAN_LIMIT_S: Final = 15.0
_WORKERS: Final = 128
_CONNECT_S: Final = 1.0
_HANDSHAKE_S: Final = 5.0
_NEARBY_PREFIX: Final = 24  # prefix length: addresses that differ in the last byte
_BLOCK: Final = 256


def find_moved_phones(
    missing: dict[HostKey, Phone], cluster: Cluster, network: Dialer, login: PKey
) -> dict[Phone, IPv4Address]:
    """The addresses at which phones with these keys answer. Ends after SCAN_LIMIT_S."""
    waiting: queue.SimpleQueue[tuple[IPv4Address, Phone]] = queue.SimpleQueue()
    for candidate in candidates(tuple(missing.values()), cluster):
        waiting.put(candidate)
    found: dict[Phone, IPv4Address] = {}
    deadline = time.monotonic() + SCAN_LIMIT_S

    def work() -> None:
        while time.monotonic() < deadline and len(found) < len(missing):
            try:
                address, phone = waiting.get_nowait()
            except queue.Empty:
                return
            key = _host_key_at(network, str(address), phone, set(missing), login)
            if key is not None:
                found[missing[key]] = address

    threads = [threading.Thread(target=work, daemon=True) for _ in range(_WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(found)


def candidates(missing: Sequence[Phone], cluster: Cluster) -> list[tuple[IPv4Address, Phone]]:
    """Addresses that are not in the inventory: near each missing phone, the closest first; then in other subnets."""
    taken = {phone.address for phone in cluster} | ({cluster.host} if cluster.host else set())
    nearest: dict[IPv4Address, tuple[int, Phone]] = {}
    for phone in missing:
        for distance, address in (*_nearby(phone, cluster.subnet), *_same_last_byte(phone, cluster.subnet)):
            if address not in taken and (address not in nearest or distance < nearest[address][0]):
                nearest[address] = (distance, phone)
    return [(address, phone) for address, (_, phone) in sorted(nearest.items(), key=lambda item: item[1][0])]


def _nearby(phone: Phone, subnet: IPv4Network) -> Iterator[tuple[int, IPv4Address]]:
    near = IPv4Network((phone.address, max(_NEARBY_PREFIX, subnet.prefixlen)), strict=False)
    return ((abs(int(address) - int(phone.address)), address) for address in near.hosts())


def _same_last_byte(phone: Phone, subnet: IPv4Network) -> Iterator[tuple[int, IPv4Address]]:
    """The same last byte in the other blocks of 256: the DHCP server may use another range."""
    blocks = range(int(subnet.network_address), int(subnet.broadcast_address), _BLOCK)
    own = int(phone.address) % _BLOCK
    return ((_BLOCK + index, IPv4Address(block + own)) for index, block in enumerate(blocks[:_BLOCK]))


def _host_key_at(network: Dialer, address: str, phone: Phone, wanted: set[HostKey], login: PKey) -> HostKey | None:
    """The host key at this address, if it is one of those wanted."""
    try:
        sock = network.connect(address, phone.ssh_port, _CONNECT_S)
    except OSError:
        return None
    transport = PhoneTransport(sock)
    try:
        transport.banner_timeout = _HANDSHAKE_S
        transport.start_client(timeout=_HANDSHAKE_S)
        presented = transport.get_remote_server_key()
        key = HostKey(presented.get_name(), presented.get_base64())
        if key not in wanted:
            return None
        with suppress(SSHException):  # the key identifies the phone, even if the login fails
            transport.auth_publickey(phone.user, login)
    except (SSHException, EOFError, OSError):
        return None
    else:
        return key
    finally:
        transport.abort()
        transport.close()
