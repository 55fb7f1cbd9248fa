"""The wired network as an application sees it."""

from __future__ import annotations

import socket
from collections.abc import Collection

from phone_agent.device import interfaces
from phone_agent.device.roots import REAL, Roots
from phone_agent.files import read_int
from phone_agent.selftest.check import Found, Look, failed, judged, unknown

GREETING = b"clusterctl selftest\n"


def has_wire(address: str, interface: str) -> Look:
    """The address in the inventory, on the interface in the inventory, and no other way out."""

    def look() -> Found:
        told = interfaces.addresses()
        if not told:
            return unknown("no interface tells its address")
        others = {name: each for name, each in told.items() if name != interface and not each.startswith("127.")}
        if told.get(interface) != address:
            return failed(f"{interface} has not {address}", interfaces=told)
        more = f"besides there are {_listed(others)}" if others else "no other interface has an address"
        return judged(not others, f"{interface} has {address}; {more}", interfaces=told)

    return look


def frame_size(interface: str, roots: Roots = REAL) -> Look:
    def look() -> Found:
        size = read_int(roots.sys / "class" / "net" / interface / "mtu")
        if size is None:
            return unknown(f"{interface}'s MTU cannot be read")
        return judged(size == 1500, f"{interface} sends frames of {size} bytes")

    return look


def calls_out(host: str, port: int) -> Look:
    """To the computer that asked, which listens: a phone may be reachable and yet reach nobody."""

    def look() -> Found:
        try:
            with socket.create_connection((host, port), timeout=8) as call:
                own = call.getsockname()[0]
                call.sendall(GREETING)
                call.settimeout(8)
                seen = call.recv(64).decode("ascii", "replace").strip()
        except OSError as error:
            return failed(f"no connection to {host}: {error.strerror or error}")
        return judged(seen == own, f"calls {host} from {own}, and is seen there as {seen}", own=own, seen=seen)

    return look


def _listed(named: Collection[str] | dict[str, str]) -> str:
    return ", ".join(named)
