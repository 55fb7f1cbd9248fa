"""The lab's network: switches are bridges, links are veth pairs, and token bucket filters limit their rate.

The *_commands functions return lines for `ip -batch` and `tc -batch`; `configure` runs them. Each end of a link shapes
what it sends, so both directions have the full rate at the same time, as in full-duplex Ethernet.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Interface
from pathlib import Path

from orchestrator.lab.config import parse_rate
from orchestrator.lab.programs import find_program
from orchestrator.lab.spec import LabSpec, VirtualPhone

HOST_END = "host0"
_HOST_PORT = "port-host"
_BURST_S = 0.001  # the burst of a token bucket, as time at full rate
_MIN_BURST = 16 << 10
_QUEUE_BURSTS = 8  # the buffer of a port, in bursts
_MIN_QUEUE = 256 << 10  # with less, a slow link drops packets of a normal TCP window
# In order of preference: a Galaxy S10+ uses bic and has no BBR; every kernel has reno.
_PHONE_CONGESTION_CONTROLS = ("bic", "cubic", "reno")
_AVAILABLE_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# With more phones, their neighbor entries (phones squared) would overflow the kernel's table for all namespaces.
_MAX_PHONES_WITH_ARP = 20


def configure(ip_lines: Iterable[str], tc_lines: Iterable[str] = (), *, netns_pid: int | None = None) -> None:
    """Run the commands in the current network namespace, or in that of process `netns_pid`."""
    _batch([*_nsenter_prefix(netns_pid), _program("ip"), "-batch", "-"], ip_lines)
    if tc_lines:
        _batch([*_nsenter_prefix(netns_pid), _program("tc"), "-batch", "-"], tc_lines)


def try_configure(ip_lines: Iterable[str], *, netns_pid: int | None = None) -> None:
    """Run the commands and ignore those that fail."""
    command = [*_nsenter_prefix(netns_pid), _program("ip"), "-force", "-batch", "-"]
    subprocess.run(command, input=_join_lines(ip_lines), capture_output=True, text=True, check=False)


def flush_neighbors(phones: Iterable[VirtualPhone]) -> None:
    """Make the host resolve the MAC addresses of these phones again.

    If it tried while a phone was off, connections would fail with `No route to host` for some seconds more.
    """
    try_configure([f"neigh flush dev {HOST_END} to {phone.address}" for phone in phones])


def delete_interface(name: str) -> None:
    """Delete a veth pair now. The kernel deletes it together with the phone's namespace, but only some time later."""
    subprocess.run([_program("ip"), "link", "delete", name], capture_output=True, check=False)


def _batch(command: Sequence[str], lines: Iterable[str]) -> None:
    done = subprocess.run(command, input=_join_lines(lines), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def _nsenter_prefix(process: int | None) -> list[str]:
    return [] if process is None else [_program("nsenter"), f"--target={process}", "--net", "--"]


def _program(name: str) -> str:
    return find_program(name) or name


def _join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def shaping_command(device: str, rate: str) -> str:
    """Token bucket filter. At 1gbit its burst holds the largest GSO packet of the kernel, so none has to be split."""
    burst = max(round(parse_rate(rate) / 8 * _BURST_S), _MIN_BURST)
    queue = max(burst * _QUEUE_BURSTS, _MIN_QUEUE)
    return f"qdisc add dev {device} root tbf rate {rate.lower()} burst {burst} limit {queue}"


def switch_commands(spec: LabSpec) -> tuple[list[str], list[str]]:
    """Create the switches, the links between them, and the host's link to the first switch."""
    config = spec.config
    ip, tc = ["link set lo up"], []
    for number in range(1, config.switches + 1):
        ip += [f"link add name sw{number} type bridge", f"link set sw{number} addrgenmode none up"]
    for number in range(1, config.switches):
        ends = f"up{number}", f"down{number + 1}"
        ip += [*_veth_pair(*ends), *_attach(ends[0], number), *_attach(ends[1], number + 1)]
        tc += [shaping_command(end, config.uplink) for end in ends]
    ip += [*_veth_pair(HOST_END, _HOST_PORT), *_attach(_HOST_PORT, 1)]
    ip += [
        f"addr add {spec.host_address}/{spec.mode.network.prefixlen} dev {HOST_END}",
        f"link set {HOST_END} addrgenmode none up",
    ]
    tc += [shaping_command(HOST_END, config.rate), shaping_command(_HOST_PORT, config.rate)]
    return ip, tc


def port_commands(connected: Iterable[tuple[VirtualPhone, int]], rate: str) -> tuple[list[str], list[str]]:
    """Create one link per phone. Its far end becomes eth0 in the network namespace of the phone's process."""
    ip, tc = [], []
    for phone, pid in connected:
        far = f"peer name eth0 address {phone.mac} netns {pid}"
        ip += [
            f"link add name {phone.switch_interface} type veth {far}",
            *_attach(phone.switch_interface, phone.switch),
        ]
        tc += [shaping_command(phone.switch_interface, rate)]
    return ip, tc


def phone_commands(
    phone: VirtualPhone, prefix_length: int, rate: str, others: Iterable[VirtualPhone]
) -> tuple[list[str], list[str]]:
    """Configure the phone's end of its link."""
    ip = ["link set lo up", *address_commands(phone, phone.address, prefix_length, others)]
    return ip, [shaping_command("eth0", rate)]


def address_commands(
    phone: VirtualPhone, address: str, prefix_length: int, others: Iterable[VirtualPhone]
) -> list[str]:
    """Bring eth0 up and give it an address."""
    network = IPv4Interface(f"{address}/{prefix_length}").network
    return [
        "link set eth0 addrgenmode none up",
        f"addr add {address}/{prefix_length} dev eth0",
        f"route replace {network} dev eth0 proto kernel scope link src {address} congctl {_congestion_control()}",
        *_static_neighbors(phone, tuple(others)),
    ]


def _congestion_control() -> str:
    """The TCP congestion control for the lab's routes.

    The system default may be BBR, which slows down a ring of eight phones (docs/design/virtual-phones.md). Setting it
    per route needs no permission and changes nothing outside the lab.
    """
    available = _AVAILABLE_CONGESTION_CONTROL.read_text(encoding="ascii").split()
    return next(name for name in _PHONE_CONGESTION_CONTROLS if name in available)


def _static_neighbors(phone: VirtualPhone, others: tuple[VirtualPhone, ...]) -> Iterator[str]:
    """Permanent neighbor entries, for labs with many phones.

    The kernel limits learned neighbors to about a thousand over all namespaces. Permanent entries do not count, so
    no setting outside the lab has to change.
    """
    if len(others) > _MAX_PHONES_WITH_ARP:
        for other in others:
            if other != phone:
                yield f"neigh replace {other.address} lladdr {other.mac} dev eth0 nud permanent"


def _veth_pair(one_end: str, other_end: str) -> list[str]:
    return [f"link add name {one_end} type veth peer name {other_end}"]


def _attach(end: str, switch: int) -> list[str]:
    return [f"link set {end} master sw{switch} addrgenmode none up"]
