"""How a dataset travels: a line of JSON with its manifest and the route, then the files one after the other.

The host sends one such stream to the first phone of a switch, and each phone passes it on: see data/receive.py.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import Any, BinaryIO

from phone_agent.contract import layout
from phone_agent.contract.dataset_manifest import Manifest, ManifestError, ShardFile, from_json
from phone_agent.contract.errors import AgentError, ErrorCode

LONGEST_HEADER = 64 << 20
ARRIVED_DAMAGED = "arrived damaged"  # follows the name of a file whose sha256 is not the one in the manifest
RECEIVE_COMMAND = f"PYTHONPATH={layout.CURRENT} exec python3 -m phone_agent data-receive"


class CutOffError(AgentError):
    code = ErrorCode.TRANSFER_INTERRUPTED

    def __init__(self) -> None:
        super().__init__("the stream was cut off: push again, what arrived is kept")


@dataclass(frozen=True)
class Stop:
    """A phone of the route, and what it lacks."""

    phone: str
    address: str
    port: int
    files: frozenset[str]


@dataclass(frozen=True)
class Delivery:
    manifest: Manifest
    route: tuple[Stop, ...]

    @property
    def files(self) -> list[ShardFile]:
        """What is in the stream, in order."""
        wanted = frozenset().union(*(stop.files for stop in self.route))
        return [file for file in self.manifest.files if file.name in wanted]

    def line(self) -> bytes:
        route = [
            {"phone": stop.phone, "address": stop.address, "port": stop.port, "files": sorted(stop.files)}
            for stop in self.route
        ]
        return json.dumps({"manifest": self.manifest.to_json(), "route": route}).encode() + b"\n"


def read_delivery(stream: BinaryIO) -> Delivery:
    line = stream.readline(LONGEST_HEADER)
    if not line.endswith(b"\n"):
        raise CutOffError
    try:
        raw = json.loads(line)
        manifest = from_json(raw["manifest"])
        route = tuple(_stop(each) for each in raw["route"])
    except (KeyError, TypeError, ValueError):
        raise ManifestError("what was sent is no delivery of a dataset") from None
    if not route or not {name for stop in route for name in stop.files} <= {file.name for file in manifest.files}:
        raise ManifestError("what was sent is no delivery of a dataset")
    return Delivery(manifest, route)


def _stop(raw: dict[str, Any]) -> Stop:
    port = int(raw["port"])
    if not 0 < port < 1 << 16:
        raise ValueError(port)
    return Stop(str(raw["phone"]), str(ipaddress.ip_address(raw["address"])), port, frozenset(map(str, raw["files"])))
