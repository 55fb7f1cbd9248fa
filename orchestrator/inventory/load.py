"""Load inventory.yaml into a Cluster, or report every problem in the file with its line."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from orchestrator.errors import InventoryError, Problem
from orchestrator.inventory import grammar
from orchestrator.inventory.document import Mapping, Report, Scalar, Section, parse, read_text
from orchestrator.inventory.load_phones import ClusterDefaults, UniqueValues
from orchestrator.inventory.load_switches import read_switches
from orchestrator.inventory.model import Cluster

INVENTORY_KEYS = ("cluster", "network", "ssh", "switches", "lab")
NETWORK_KEYS = ("subnet", "host", "interface", "rate")
SSH_KEYS = ("port", "user", "key")
EXPECTED = "an inventory is a mapping with the keys cluster, network and switches"


def load(path: Path) -> Cluster:
    """Raises InventoryError with every problem found."""
    return load_text(read_text(path), path)


def load_text(text: str, path: Path) -> Cluster:
    """`text` as if it were the content of `path`."""
    problems: set[Problem] = set()

    def report(line: int, message: str) -> None:
        problems.add(Problem(line, _presentable(message)))

    root = parse(text, report)
    cluster = None
    if isinstance(root, Mapping):
        cluster = _cluster(Section(root, "the inventory", INVENTORY_KEYS, report), path, report)
    elif root is None or (isinstance(root, Scalar) and root.text is None):
        if not problems:
            report(0, f"is empty; {EXPECTED}")
    else:
        report(root.line, f"{EXPECTED}; this is {root.kind}")
    if problems or cluster is None:
        raise InventoryError(path, list(problems))
    return cluster


def _cluster(top: Section, source: Path, report: Report) -> Cluster | None:
    used = UniqueValues()
    name = top.required("cluster", grammar.name)
    network = _network(top, used, report)
    ssh = _ssh(top, source)
    lab = top.optional("lab", lambda text: _path(text, source))
    switches = read_switches(top, ClusterDefaults(network.subnet, network.rate, ssh.port, ssh.user), used, report)
    if name is None or network.subnet is None:
        return None
    return Cluster(
        name=name,
        subnet=network.subnet,
        host=network.host,
        interface=network.interface,
        rate=network.rate,
        switches=switches,
        source=source,
        ssh_key=ssh.key,
        lab=lab,
    )


@dataclass(frozen=True)
class _Network:
    subnet: IPv4Network | None = None
    host: IPv4Address | None = None
    interface: str = "eth0"
    rate: str = "1gbit"


def _network(top: Section, used: UniqueValues, report: Report) -> _Network:
    section = top.section("network", NETWORK_KEYS, required=True)
    if section is None:
        return _Network()
    subnet = section.required("subnet", grammar.subnet)
    host = section.optional("host", grammar.address)
    line = section.line_of("host")
    if host is not None and (wrong := used.address_conflict(host, subnet, "this computer (network.host)", line)):
        report(line, f"host: {wrong}")
    return _Network(
        subnet,
        host,
        section.optional("interface", grammar.interface) or _Network.interface,
        section.optional("rate", grammar.rate) or _Network.rate,
    )


@dataclass(frozen=True)
class _Ssh:
    port: int = 8022
    user: str = "termux"
    key: Path | None = None


def _ssh(top: Section, source: Path) -> _Ssh:
    section = top.section("ssh", SSH_KEYS)
    if section is None:
        return _Ssh()
    return _Ssh(
        section.optional("port", grammar.tcp_port) or _Ssh.port,
        section.optional("user", grammar.user) or _Ssh.user,
        section.optional("key", lambda text: _file(text, source)),
    )


def _path(text: str, source: Path) -> Path:
    """Relative paths are relative to the inventory file, not to the working directory."""
    try:
        return source.absolute().parent / Path(grammar.path(text)).expanduser()
    except RuntimeError as error:
        raise ValueError(f"unknown user in '{text}'") from error


def _file(text: str, source: Path) -> Path:
    path = _path(text, source)
    if path.name in {"", ".."}:
        raise ValueError(f"'{text}' is a directory, not a file")
    return path


def _presentable(message: str) -> str:
    """Messages quote the file, which may contain anything: limit the length and escape control characters."""
    plain = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message[:400])
    return plain if len(message) <= 400 else f"{plain} …"
