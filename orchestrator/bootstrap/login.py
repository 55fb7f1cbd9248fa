"""A real login through the cable: proves that sshd runs, lets this computer in, and is the phone's own."""

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
class _Forwarded:
    """Whatever address is called, the phone at the end of the cable answers."""

    port: int
    time_scale: float = 1.0

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        del address, port
        return socket.create_connection(("127.0.0.1", self.port), timeout)


def answers(device: Device, phone: Phone, cluster: Cluster, state: ClusterState, host_key: str) -> bool:
    known = replace(phone, host_key=host_key)
    try:
        with (
            _forwarded(device, phone.ssh_port) as port,
            Fleet((known,), state, _Forwarded(port), key=cluster.ssh_key) as fleet,
        ):
            return fleet.connection(known).run(["true"]).ok
    except AdbError:
        raise
    except PhoneError:
        return False


@contextmanager
def _forwarded(device: Device, port: int) -> Iterator[int]:
    done = device.run("forward", "tcp:0", f"tcp:{port}")
    if not done.ok or not done.stdout.strip().isdecimal():
        raise AdbError(f"adb forward is refused: {done.said}")
    ours = done.stdout.strip()
    try:
        yield int(ours)
    finally:
        device.adb.run("-s", device.name, "forward", "--remove", f"tcp:{ours}")
