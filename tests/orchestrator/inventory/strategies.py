"""Random clusters: trees of switches with phones on some of their ports."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from hypothesis import strategies as st

from orchestrator.inventory import Cluster, Phone, Switch, Uplink

SUBNET = IPv4Network("10.77.0.0/16")
PORTS = 32
PHONE_PORTS = 12  # the others are for uplinks


def host_key(switch: int, port: int) -> str:
    """Of the right form; no key of anybody's."""
    blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes([switch, port]) * 16
    return f"ssh-ed25519 {b64encode(blob).decode()}"


def phone(switch: int, port: int, mac: str | None = None, serial: str | None = None, key: str | None = None) -> Phone:
    address = IPv4Address(f"10.77.{switch}.{port}")
    return Phone(f"p{switch}-{port:02}", f"sw{switch}", port, address, mac=mac, serial=serial, host_key=key)


@st.composite
def switches(draw: st.DrawFn, number: int, parent: int | None) -> Switch:
    ports = draw(st.sets(st.integers(1, PHONE_PORTS)))
    phones = tuple(phone(number, port, *draw(details(number, port))) for port in sorted(ports))
    return Switch(f"sw{number}", PORTS, phones, draw(uplinks(number, parent)) if parent else None)


def uplinks(number: int, parent: int) -> st.SearchStrategy[Uplink]:
    rate = st.sampled_from(["1gbit", "2.5gbit"])
    far_port = st.sampled_from([None, PHONE_PORTS + 1 + number])
    return st.builds(Uplink, st.just(PHONE_PORTS + 1), st.just(f"sw{parent}"), rate, far_port)


def details(switch: int, port: int) -> st.SearchStrategy[tuple[str | None, ...]]:
    return st.tuples(
        st.sampled_from([None, f"02:00:00:00:{switch:02x}:{port:02x}"]),
        st.sampled_from([None, f"R58M{switch}-{port}"]),
        st.sampled_from([None, host_key(switch, port)]),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """At least one phone; switches in any order, so that the tree's root need not be the first."""
    count = draw(st.integers(1, 7))
    parents = [None, *(draw(st.integers(1, number - 1)) for number in range(2, count + 1))]
    racks = [draw(switches(number, parent)) for number, parent in enumerate(parents, start=1)]
    if not any(rack.phones for rack in racks):
        racks[0] = Switch("sw1", PORTS, (phone(1, 1),))
    return Cluster(
        name="random",
        subnet=SUBNET,
        host=draw(st.sampled_from([None, IPv4Address("10.77.0.1")])),
        interface="eth0",
        rate="1gbit",
        switches=tuple(draw(st.permutations(racks))),
        source=Path("random.yaml"),
        ssh_key=draw(st.sampled_from([None, Path("/keys/a key: 'it'")])),
        lab=draw(st.sampled_from([None, Path("/state/lab")])),
    )
