"""Network interfaces and their IPv4 addresses, from the one ioctl that every Android version allows to apps.

/proc/net is denied from Android 10 and netlink from Android 13; Open MPI in Termux uses the same ioctl.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct

SIOCGIFCONF = 0x8912
ENTRY = struct.Struct("16s4x4s16x")  # struct ifreq on 64-bit Linux: name, sockaddr_in
MAX_INTERFACES = 64


def addresses() -> dict[str, str]:
    """Name -> IPv4 address of every interface that is up; empty if unknown."""
    entries = array.array("B", bytes(ENTRY.size * MAX_INTERFACES))
    request = struct.pack("iL", len(entries), entries.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            size = struct.unpack("iL", fcntl.ioctl(probe, SIOCGIFCONF, request))[0]
    except OSError:
        return {}
    found = ENTRY.iter_unpack(entries.tobytes()[:size])
    return {name.rstrip(b"\0").decode(): socket.inet_ntoa(address) for name, address in found}


def has_address(address: str) -> bool | None:
    """Whether an interface of this phone has the address; None if unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return False if error.errno == errno.EADDRNOTAVAIL else None
    return True
