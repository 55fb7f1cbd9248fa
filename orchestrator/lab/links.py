"""Switches, cables and their speed: bridges, veth pairs and token buckets in the lab's network namespace.

Every function returns lines for `ip -batch` or `tc -batch`; `configure` runs them. A cable is shaped at both
ends, each end shaping what it sends, so both directions have the full rate at the same time as Ethernet does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Interface
from pathlib import Path

from orchestrator.lab.programs import find_program
from orchestrator.lab.shape import bits_per_second
from orchestrator.lab.spec import LabSpec, VirtualPhone

HOST_END = "host0"
_HOST_PORT = "port-host"
_BURST_S = 0.001  # what a token bucket may send at once
_SMALLEST_BURST = 16 << 10
_QUEUE_BURSTS = 8  # what a port buffers before it drops, in bursts
_SMALLEST_QUEUE = 256 << 10  # less, and a slow link drops what TCP has under way at any time
_LIKE_A_PHONE = ("bic", "cubic", "reno")  # a Galaxy S10+ has the first, and no BBR; every kernel has the last
_WAYS_OF_SENDING = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_CROWD = 20  # more neighbours than the kernel's table (shared by all namespaces) holds: phones squared


def configure(ip_lines: Iterable[str], tc_lines: Iterable[str] = (), *, within: int | None = None) -> None:
    """Applies the lines in this process's network namespace, or in that of process `within`."""
    _batch([*_entering(within), _program("ip"), "-batch", "-"], ip_lines)
    if tc_lines:
        _batch([*_entering(within), _program("tc"), "-batch", "-"], tc_lines)


def undo(ip_lines: Iterable[str], *, within: int | None = None) -> None:
    """Applies the lines, passing over those that find nothing to undo."""
    command = [*_entering(within), _program("ip"), "-force", "-batch", "-"]
    subprocess.run(command, input=_joined(ip_lines), capture_output=True, text=True, check=False)


def reachable_again(phones: Iterable[VirtualPhone]) -> None:
    """Whoever called a phone while it was off is still asking for its MAC, and would hear `No route to host` from a
    phone that is there by now: the host asks anew."""
    undo([f"neigh flush dev {HOST_END} to {phone.address}" for phone in phones])


def remove(cable: str) -> None:
    """Takes a phone's cable out. With the phone it goes by itself, but the kernel takes its time."""
    subprocess.run([_program("ip"), "link", "delete", cable], capture_output=True, check=False)


def _batch(command: Sequence[str], lines: Iterable[str]) -> None:
    done = subprocess.run(command, input=_joined(lines), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def _entering(process: int | None) -> list[str]:
    return [] if process is None else [_program("nsenter"), f"--target={process}", "--net", "--"]


def _program(name: str) -> str:
    return find_program(name) or name


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def shaped(device: str, rate: str) -> str:
    """A token bucket: at 1gbit its burst holds the largest packet the kernel forms, so none has to be cut up."""
    burst = max(round(bits_per_second(rate) / 8 * _BURST_S), _SMALLEST_BURST)
    queue = max(burst * _QUEUE_BURSTS, _SMALLEST_QUEUE)
    return f"qdisc add dev {device} root tbf rate {rate.lower()} burst {burst} limit {queue}"


def switches(spec: LabSpec) -> tuple[list[str], list[str]]:
    """The bridges, the cables between them, and the host plugged into the first."""
    shape = spec.shape
    ip, tc = ["link set lo up"], []
    for number in range(1, shape.switches + 1):
        ip += [f"link add name sw{number} type bridge", f"link set sw{number} addrgenmode none up"]
    for number in range(1, shape.switches):
        ends = f"up{number}", f"down{number + 1}"
        ip += [*_cable(*ends), *_plug(ends[0], number), *_plug(ends[1], number + 1)]
        tc += [shaped(end, shape.uplink) for end in ends]
    ip += [*_cable(HOST_END, _HOST_PORT), *_plug(_HOST_PORT, 1)]
    ip += [
        f"addr add {spec.host_address}/{spec.mode.network.prefixlen} dev {HOST_END}",
        f"link set {HOST_END} addrgenmode none up",
    ]
    tc += [shaped(HOST_END, shape.rate), shaped(_HOST_PORT, shape.rate)]
    return ip, tc


def phones(connected: Iterable[tuple[VirtualPhone, int]], rate: str) -> tuple[list[str], list[str]]:
    """The switches' side: a cable for each phone, whose far end is eth0 in the namespace of process `pid`."""
    ip, tc = [], []
    for phone, pid in connected:
        far = f"peer name eth0 address {phone.mac} netns {pid}"
        ip += [f"link add name {phone.cable} type veth {far}", *_plug(phone.cable, phone.switch)]
        tc += [shaped(phone.cable, rate)]
    return ip, tc


def inside(
    phone: VirtualPhone, prefix_length: int, rate: str, others: Iterable[VirtualPhone]
) -> tuple[list[str], list[str]]:
    """The phone's side of its cable."""
    return ["link set lo up", *addressed(phone, phone.address, prefix_length, others)], [shaped("eth0", rate)]


def addressed(phone: VirtualPhone, address: str, prefix_length: int, others: Iterable[VirtualPhone]) -> list[str]:
    """The phone's end of its cable, up and with an address."""
    network = IPv4Interface(f"{address}/{prefix_length}").network
    return [
        "link set eth0 addrgenmode none up",
        f"addr add {address}/{prefix_length} dev eth0",
        f"route replace {network} dev eth0 proto kernel scope link src {address} congctl {_way_of_sending()}",
        *_neighbours(phone, tuple(others)),
    ]


def _way_of_sending() -> str:
    """The TCP congestion control for the lab's routes.

    The system default may be BBR, which slows rings of eight phones (docs/guide/lab.md). Setting it per route needs no
    permission and changes nothing outside the lab."""
    there = _WAYS_OF_SENDING.read_text(encoding="ascii").split()
    return next(way for way in _LIKE_A_PHONE if way in there)


def _neighbours(phone: VirtualPhone, others: tuple[VirtualPhone, ...]) -> Iterator[str]:
    """In a crowd, phones know each other's MAC from the start.

    The kernel counts learned neighbours over all namespaces against one limit of about a thousand; permanent
    ones are not counted. This way nothing outside the lab has to be changed.
    """
    if len(others) > _CROWD:
        for other in others:
            if other != phone:
                yield f"neigh replace {other.address} lladdr {other.mac} dev eth0 nud permanent"


def _cable(one_end: str, other_end: str) -> list[str]:
    return [f"link add name {one_end} type veth peer name {other_end}"]


def _plug(end: str, switch: int) -> list[str]:
    return [f"link set {end} master sw{switch} addrgenmode none up"]
