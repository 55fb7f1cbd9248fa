"""Access to the lab's network: sockets that the lab daemon creates inside it.

A socket stays in the network namespace it was created in, even if it is passed to another process. So clusterctl
remains in the host's network and needs no privileges to connect to virtual phones.
"""

from __future__ import annotations

import socket
from pathlib import Path

from orchestrator.errors import ClusterctlError
from orchestrator.fleet.network import DirectNetwork, Network
from orchestrator.inventory.model import Cluster
from orchestrator.lab.client import read_spec, request

_EMULATION_TIME_SCALE = 10.0


class LabNetwork:
    def __init__(self, lab_dir: Path) -> None:
        self._lab_dir = lab_dir
        self.time_scale = _EMULATION_TIME_SCALE if read_spec(lab_dir).config.arch.is_emulated else 1.0

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        channel = self._socket(socket.SOCK_STREAM)
        try:
            channel.settimeout(timeout)
            channel.connect((address, port))
        except BaseException:
            channel.close()
            raise
        return channel

    def listen(self, address: str, port: int) -> socket.socket:
        server = self._socket(socket.SOCK_STREAM)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((address, port))
            server.listen()
        except BaseException:
            server.close()
            raise
        return server

    def source_address(self, towards: str) -> str:
        with self._socket(socket.SOCK_DGRAM) as probe:
            probe.connect((towards, 9))  # UDP connect sends nothing; it only consults the routing table
            return str(probe.getsockname()[0])

    def _socket(self, kind: socket.SocketKind) -> socket.socket:
        try:
            _, files = request(self._lab_dir, {"op": "socket", "kind": int(kind)})
        except ClusterctlError as error:
            raise ConnectionError(error.message) from error
        return socket.socket(fileno=files[0])


def open_network(cluster: Cluster) -> Network:
    """How this computer reaches the phones of a cluster."""
    return DirectNetwork() if cluster.lab is None else LabNetwork(cluster.lab)
