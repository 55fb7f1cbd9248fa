"""An SSH login through the USB cable: proves that sshd runs, accepts our key, and has the phone's host key."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from orchestrator.bootstrap.adb import AdbError, Device
from orchestrator.errors import PhoneError
from orchestrator.fleet import Fleet
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState


@dataclass(frozen=True)
class _ForwardedNetwork:
    """Connects every address to the forwarded port of the phone on the cable."""

    port: int
    time_scale: float = 1.0

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        del address, port
        return socket.create_connection(("127.0.0.1", self.port), timeout)


def accepts_login(device: Device, phone: Phone, cluster: Cluster, state: ClusterState, host_key: str) -> bool:
    pinned = replace(phone, host_key=host_key)
    try:
        with (
            _forwarded_port(device, phone.ssh_port) as port,
            Fleet((pinned,), state, _ForwardedNetwork(port), key=cluster.ssh_key) as fleet,
        ):
            return fleet.connection(pinned).run(["true"]).ok
    except AdbError:
        raise
    except PhoneError:
        return False


@contextmanager
def _forwarded_port(device: Device, port: int) -> Iterator[int]:
    result = device.run("forward", "tcp:0", f"tcp:{port}")
    if not result.ok or not result.stdout.strip().isdecimal():
        raise AdbError(f"adb forward failed: {result.summary}")
    local = result.stdout.strip()
    try:
        yield int(local)
    finally:
        device.adb.run("-s", device.name, "forward", "--remove", f"tcp:{local}")
