"""Write a Cluster as inventory.yaml, for generated clusters such as a lab."""

from __future__ import annotations

import json
from collections.abc import Iterable

from orchestrator.inventory.model import Cluster, Phone, Switch, Uplink


def dump(cluster: Cluster) -> str:
    """YAML that `load` reads back to an equal cluster."""
    sections = [
        ("cluster", _quote(cluster.name)),
        ("network", _flow(_network(cluster))),
        ("ssh", _flow(_ssh(cluster))),
        ("lab", _quote(cluster.lab)),
    ]
    lines = [f"{key}: {value}" for key, value in sections if value is not None]
    lines.append("switches:")
    for switch in cluster.switches:
        lines += _switch(switch)
    return "\n".join(lines) + "\n"


def _network(cluster: Cluster) -> dict[str, object]:
    return {
        "subnet": cluster.subnet,
        "host": cluster.host,
        "interface": cluster.interface,
        "rate": cluster.rate,
    }


def _ssh(cluster: Cluster) -> dict[str, object]:
    logins = {(phone.ssh_port, phone.user) for phone in cluster}
    if len(logins) != 1:
        raise ValueError("an inventory needs at least one phone, and one ssh port and user for all phones")
    ((port, user),) = logins
    return {"port": port, "user": user, "key": cluster.ssh_key}


def _switch(switch: Switch) -> Iterable[str]:
    yield f"  {_quote(switch.name)}:"
    yield f"    ports: {switch.ports}"
    if switch.uplink:
        yield f"    uplink: {_flow(_uplink(switch.uplink))}"
    if switch.phones:
        yield "    phones:"
    for phone in switch.phones:
        yield f"      - {_flow(_phone(phone))}"


def _uplink(uplink: Uplink) -> dict[str, object]:
    to = uplink.to if uplink.to_port is None else f"{uplink.to}:{uplink.to_port}"
    return {"port": uplink.port, "to": to, "rate": uplink.rate}


def _phone(phone: Phone) -> dict[str, object]:
    return {
        "port": phone.port,
        "name": phone.name,
        "address": phone.address,
        "mac": phone.mac,
        "serial": phone.serial,
        "host_key": phone.host_key,
    }


def _flow(items: dict[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {_quote(value)}" for key, value in items.items() if value is not None) + "}"


def _quote(value: object) -> str | None:
    """Quote as JSON: every JSON string is a YAML string."""
    if value is None:
        return None
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)
