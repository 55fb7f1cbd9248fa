"""The wired network as an application sees it."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys

from phone_agent import bind_shim
from phone_agent.contract import layout
from phone_agent.contract.assumptions import Found, Look, failed, judged, unknown
from phone_agent.device import interfaces

SIOCGIFMTU = 0x8921
TCP_CONGESTION, LONGEST_NAME = 13, 16  # the option of a socket, and bytes of its answer
BY_LOSSES = {"bic", "cubic", "reno"}
LISTEN = "import socket; print(socket.create_server(('0.0.0.0', 0)).getsockname()[0])"
GREETING = b"clusterctl selftest\n"


def has_wire(address: str, interface: str) -> Look:
    """The address in the inventory, on the interface in the inventory."""

    def look() -> Found:
        told = interfaces.addresses()
        if not told:
            return unknown("no interface tells its address")
        has = told.get(interface, "no address")
        return judged(has == address, f"{interface} has {has}", interfaces=told)

    return look


def other_ways(interface: str) -> Look:
    def look() -> Found:
        told = interfaces.addresses()
        others = {name: each for name, each in told.items() if name != interface and not each.startswith("127.")}
        return judged(not others, f"besides {interface} there are {', '.join(others) or 'none'}", interfaces=told)

    return look


def frame_size(interface: str) -> Look:
    def look() -> Found:
        request = struct.pack("16s16x", interface.encode())
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                size = struct.unpack_from("i", fcntl.ioctl(probe, SIOCGIFMTU, request), 16)[0]
        except OSError as error:
            return unknown(f"{interface}'s MTU cannot be read: {error.strerror}")
        return judged(size == 1500, f"{interface} sends frames of {size} bytes")

    return look


def congestion() -> Found:
    """A socket tells, also where Android hides /proc/sys."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            told = probe.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, LONGEST_NAME)
    except OSError as error:
        return unknown(f"a socket does not tell how TCP finds its rate: {error.strerror}")
    way = told.partition(b"\0")[0].decode("ascii", "replace")
    return judged(way in BY_LOSSES, f"TCP finds its rate by {way}")


def listens_on(address: str) -> Look:
    """A listener on every address, with the library that Open MPI is started with: on which is it really?"""

    def look() -> Found:
        if not bind_shim.SHIPPED.is_file():
            return unknown(f"{bind_shim.SHIPPED.name} is not in this agent")
        preload = ":".join(filter(None, (str(bind_shim.SHIPPED), os.environ.get("LD_PRELOAD"))))
        env = {**os.environ, "LD_PRELOAD": preload, layout.WIRED_ADDRESS: address}
        done = subprocess.run([sys.executable, "-c", LISTEN], env=env, capture_output=True, text=True, check=False)
        said = (done.stdout or done.stderr).strip()[-200:]
        return judged(said == address, f"a listener on every address is on {said}")

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
