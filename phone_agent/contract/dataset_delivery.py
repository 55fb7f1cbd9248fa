"""The stream in which a dataset is pushed: one line of JSON with its manifest and the route, then the files.

The host sends one such stream to the first phone of a switch, and each phone passes it on: see data/receive.py.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import Any, BinaryIO

from phone_agent.contract import layout
from phone_agent.contract.dataset_manifest import DatasetManifest, ManifestError, ShardFile, parse_manifest
from phone_agent.contract.errors import AgentError, ErrorCode

MAX_HEADER_BYTES = 64 << 20
RECEIVE_COMMAND = f"PYTHONPATH={layout.CURRENT} exec python3 -m phone_agent data-receive"
LOGIN_CHECK = "true"  # the other command that the phones' key may run


class TransferInterruptedError(AgentError):
    code = ErrorCode.TRANSFER_INTERRUPTED

    def __init__(self) -> None:
        super().__init__("the transfer was interrupted: push again; files that arrived are kept")


@dataclass(frozen=True)
class Hop:
    """A phone on the route, and the files that it lacks."""

    phone: str
    address: str
    port: int
    files: frozenset[str]


@dataclass(frozen=True)
class Delivery:
    manifest: DatasetManifest
    route: tuple[Hop, ...]

    @property
    def files(self) -> list[ShardFile]:
        """The files in the stream, in order."""
        wanted = frozenset().union(*(hop.files for hop in self.route))
        return [file for file in self.manifest.files if file.name in wanted]

    def line(self) -> bytes:
        route = [
            {"phone": hop.phone, "address": hop.address, "port": hop.port, "files": sorted(hop.files)}
            for hop in self.route
        ]
        return json.dumps({"manifest": self.manifest.to_json(), "route": route}).encode() + b"\n"


def read_delivery(stream: BinaryIO) -> Delivery:
    line = stream.readline(MAX_HEADER_BYTES)
    if not line.endswith(b"\n"):
        raise TransferInterruptedError
    try:
        raw = json.loads(line)
        manifest = parse_manifest(raw["manifest"])
        route = tuple(_hop(each) for each in raw["route"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise ManifestError("the stream does not start with a dataset delivery") from None
    if not route or not {name for hop in route for name in hop.files} <= {file.name for file in manifest.files}:
        raise ManifestError("the stream does not start with a dataset delivery")
    return Delivery(manifest, route)


def _hop(raw: dict[str, Any]) -> Hop:
    port = int(raw["port"])
    if not 0 < port < 1 << 16:
        raise ValueError(port)
    return Hop(str(raw["phone"]), str(ipaddress.ip_address(raw["address"])), port, frozenset(map(str, raw["files"])))
