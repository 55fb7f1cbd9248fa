"""Checks of the wired network, as seen by an app."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys

from phone_agent import bind_shim
from phone_agent.contract import layout
from phone_agent.contract.assumptions import CheckFunction, CheckResult, failed, ok_if, unknown
from phone_agent.device import interfaces

SIOCGIFMTU = 0x8921
TCP_CONGESTION, MAX_NAME_BYTES = 13, 16  # socket option and the size of its value
LOSS_BASED = {"bic", "cubic", "reno"}
LISTEN = "import socket; print(socket.create_server(('0.0.0.0', 0)).getsockname()[0])"
GREETING = b"clusterctl selftest\n"


def wired_address(address: str, interface: str) -> CheckFunction:
    """The interface in the inventory must have the address in the inventory."""

    def check() -> CheckResult:
        addresses = interfaces.addresses()
        if not addresses:
            return unknown("the addresses of the interfaces are not readable")
        found = addresses.get(interface, "no address")
        return ok_if(found == address, f"{interface} has {found}", interfaces=addresses)

    return check


def other_interfaces(interface: str) -> CheckFunction:
    def check() -> CheckResult:
        addresses = interfaces.addresses()
        others = {name: each for name, each in addresses.items() if name != interface and not each.startswith("127.")}
        return ok_if(not others, f"other interfaces: {', '.join(others) or 'none'}", interfaces=addresses)

    return check


def mtu(interface: str) -> CheckFunction:
    def check() -> CheckResult:
        request = struct.pack("16s16x", interface.encode())
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                size = struct.unpack_from("i", fcntl.ioctl(probe, SIOCGIFMTU, request), 16)[0]
        except OSError as error:
            return unknown(f"cannot read the MTU of {interface}: {error.strerror}")
        return ok_if(size == 1500, f"{interface} has an MTU of {size} bytes")

    return check


def congestion_control() -> CheckResult:
    """Read from a socket, which works even if Android hides /proc/sys."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            value = probe.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, MAX_NAME_BYTES)
    except OSError as error:
        return unknown(f"cannot read the TCP congestion control of a socket: {error.strerror}")
    name = value.partition(b"\0")[0].decode("ascii", "replace")
    return ok_if(name in LOSS_BASED, f"TCP congestion control: {name}")


def listen_address(address: str) -> CheckFunction:
    """Listens on 0.0.0.0 with the library that is preloaded for Open MPI, and checks the bound address."""

    def check() -> CheckResult:
        if not bind_shim.SHIPPED.is_file():
            return unknown(f"{bind_shim.SHIPPED.name} is missing from this agent")
        preload = ":".join(filter(None, (str(bind_shim.SHIPPED), os.environ.get("LD_PRELOAD"))))
        env = {**os.environ, "LD_PRELOAD": preload, layout.WIRED_ADDRESS: address}
        done = subprocess.run([sys.executable, "-c", LISTEN], env=env, capture_output=True, text=True, check=False)
        bound = (done.stdout or done.stderr).strip()[-200:]
        return ok_if(bound == address, f"a listener on 0.0.0.0 is bound to {bound}")

    return check


def outbound(host: str, port: int) -> CheckFunction:
    """Connects to the callback server of the host: a phone may accept connections but be unable to make any."""

    def check() -> CheckResult:
        try:
            with socket.create_connection((host, port), timeout=8) as connection:
                own = connection.getsockname()[0]
                connection.sendall(GREETING)
                connection.settimeout(8)
                seen = connection.recv(64).decode("ascii", "replace").strip()
        except OSError as error:
            return failed(f"no connection to {host}: {error.strerror or error}")
        return ok_if(seen == own, f"connected to {host} from {own}, seen there as {seen}", own=own, seen=seen)

    return check
