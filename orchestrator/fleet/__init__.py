"""Many phones over SSH: connections, pinned host keys, commands, copies, and a parallel map of outcomes.

Names are looked up when they are used, so `orchestrator.fleet.network` and `.result` cost no paramiko.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.fleet.connection import PhoneConnection
    from orchestrator.fleet.errors import FleetInterrupted, Unreachable
    from orchestrator.fleet.fleet import Fleet
    from orchestrator.fleet.host_keys import HostKeys
    from orchestrator.fleet.keys import ensure_keypair
    from orchestrator.fleet.stream import Stream
    from orchestrator.fleet.timeouts import Timeouts

__all__ = [
    "Fleet",
    "FleetInterrupted",
    "HostKeys",
    "PhoneConnection",
    "Stream",
    "Timeouts",
    "Unreachable",
    "ensure_keypair",
]

_MODULES = {
    "Fleet": "fleet",
    "FleetInterrupted": "errors",
    "HostKeys": "host_keys",
    "PhoneConnection": "connection",
    "Stream": "stream",
    "Timeouts": "timeouts",
    "Unreachable": "errors",
    "ensure_keypair": "keys",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
