"""The `phones:` entries of a switch: single ports, and ranges with templates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network

from orchestrator.inventory import grammar
from orchestrator.inventory.document import Mapping, Report, Section
from orchestrator.inventory.grammar import fold_ports, parse_port, parse_ports
from orchestrator.inventory.model import Phone

PHONE_KEYS = ("port", "ports", "name", "address", "mac", "macs", "serial", "serials", "host_key", "host_keys")


@dataclass(frozen=True)
class UniqueField:
    """An optional field whose value must be unique in the cluster."""

    key: str
    what: str
    parse: Callable[[str], str]


MAC = UniqueField("mac", "MAC address", grammar.mac)
SERIAL = UniqueField("serial", "serial number", grammar.serial)
HOST_KEY = UniqueField("host_key", "host key", grammar.host_key)


@dataclass(frozen=True)
class Entry:
    """One item under `phones:`; it may describe several ports."""

    section: Section
    switch: str
    ports: tuple[int, ...]
    name: str | None
    address: str | None
    macs: dict[int, str]
    serials: dict[int, str]
    host_keys: dict[int, str]
    conflicts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def accept(self, key: str, conflict: str | None) -> bool:
        """Record a conflict under the key that caused it; a port range reports only the first."""
        if conflict:
            self.conflicts[key].append(conflict)
        return conflict is None

    def report_conflicts(self, report: Report) -> None:
        for key, (first, *more) in self.conflicts.items():
            others = f" (and {len(more)} more of ports {fold_ports(self.ports)})" if more else ""
            report(self.section.line_of(key), first + others)


@dataclass(frozen=True)
class ClusterDefaults:
    """Settings that apply to all phones of a cluster."""

    subnet: IPv4Network | None
    rate: str
    ssh_port: int
    user: str


@dataclass
class PhoneReader:
    defaults: ClusterDefaults
    used: UniqueValues
    report: Report
    any_entry: bool = field(default=False, init=False)

    def read(self, switch: Section, name: str, last_port: int) -> tuple[Phone, ...]:
        """The phones of one switch in port order; problems are reported."""
        listed = switch.sequence("phones")
        phones: list[Phone] = []
        self.any_entry |= "phones" in switch and (listed is None or bool(listed.items))
        for node in listed.items if listed else ():
            if isinstance(node, Mapping):
                section = Section(node, f"a phone entry under {name}", PHONE_KEYS, self.report)
                phones += self._phones(self._entry(section, name, last_port))
            else:
                self.report(
                    node.line,
                    f"each phone entry under {name} must be a mapping with the keys port (or ports), name and address",
                )
        return tuple(sorted(phones, key=lambda phone: phone.port))

    def _entry(self, section: Section, switch: str, last_port: int) -> Entry:
        ports = self._ports(section, last_port)
        return Entry(
            section,
            switch,
            ports,
            self._template(section, "name", ports),
            self._template(section, "address", ports),
            self._per_port(section, MAC, switch, ports),
            self._per_port(section, SERIAL, switch, ports),
            self._per_port(section, HOST_KEY, switch, ports),
        )

    def _ports(self, section: Section, last_port: int) -> tuple[int, ...]:
        if ("port" in section) == ("ports" in section):
            self.report(section.line, "a phone entry needs either 'port: 7' or 'ports: 1-46'")
            return ()
        if "port" in section:
            port = section.optional("port", lambda text: parse_port(text, last_port))
            return () if port is None else (port,)
        return section.optional("ports", lambda text: parse_ports(text, last_port)) or ()

    def _template(self, section: Section, key: str, ports: tuple[int, ...]) -> str | None:
        text = section.required(key, grammar.template)
        if text is not None and len(ports) > 1 and not grammar.has_port_placeholder(text):
            span = fold_ports(ports)
            self.report(section.line_of(key), f"{key} '{text}' is the same for ports {span}; put {{port}} in it")
            return None
        return text

    def _per_port(self, section: Section, detail: UniqueField, switch: str, ports: tuple[int, ...]) -> dict[int, str]:
        """`mac:` for a single port, or `macs: {1: …, 2: …}` for a range."""
        one, many = detail.key, detail.key + "s"
        wrong, right, given = (one, many, "ports") if "ports" in section else (many, one, "port")
        if wrong in section:
            self.report(section.line_of(wrong), f"'{wrong}' cannot be combined with '{given}'; use '{right}'")
        found = self._by_port(section, many, ports) if given == "ports" else dict.fromkeys(ports, (section, one))
        values = {port: self._unique(inner, key, detail, f"{switch}:{port}") for port, (inner, key) in found.items()}
        return {port: value for port, value in values.items() if value is not None}

    def _by_port(self, section: Section, key: str, ports: tuple[int, ...]) -> dict[int, tuple[Section, str]]:
        node = section.mapping(key)
        if node is None or not ports:
            return {}
        names = {str(port): port for port in ports}
        for name in node.items.keys() - names.keys():
            span = fold_ports(ports)
            self.report(node.key_lines[name], f"{key}: '{name}' is not one of this entry's ports, {span}")
        inner = Section(node, f"'{key}'", tuple(node.items), self.report)
        inner.prefix = f"{key}: port "
        return {port: (inner, name) for name, port in names.items()}

    def _unique(self, section: Section, key: str, detail: UniqueField, owner: str) -> str | None:
        def checked(text: str) -> str:
            value = detail.parse(text)
            if conflict := self.used.conflict(detail.what, value, owner, section.line_of(key)):
                raise ValueError(conflict)
            return value

        return section.optional(key, checked)

    def _phones(self, entry: Entry) -> list[Phone]:
        made = [self._phone(entry, port) for port in entry.ports]
        entry.report_conflicts(self.report)
        return [phone for phone in made if phone is not None]

    def _phone(self, entry: Entry, port: int) -> Phone | None:
        where = f"{entry.switch}:{port}"
        name = self._name(entry, port)
        owner = name or where
        key = "ports" if "ports" in entry.section else "port"
        free = entry.accept(key, self.used.conflict("port", where, owner, entry.section.line))
        address = self._address(entry, port, owner)
        if name is None or address is None or not free:
            return None
        return Phone(
            name=name,
            switch=entry.switch,
            port=port,
            address=address,
            ssh_port=self.defaults.ssh_port,
            user=self.defaults.user,
            mac=entry.macs.get(port),
            serial=entry.serials.get(port),
            host_key=entry.host_keys.get(port),
        )

    def _name(self, entry: Entry, port: int) -> str | None:
        if entry.name is None:
            return None
        try:
            name = grammar.name(grammar.fill_template(entry.name, entry.switch, port))
        except ValueError as error:
            entry.accept("name", f"name: {error}")
            return None
        conflict = self.used.conflict("name", name, f"{entry.switch}:{port}", entry.section.line)
        return name if entry.accept("name", conflict) else None

    def _address(self, entry: Entry, port: int, owner: str) -> IPv4Address | None:
        if entry.address is None:
            return None
        try:
            address = grammar.address(grammar.fill_template(entry.address, entry.switch, port))
        except ValueError as error:
            entry.accept("address", f"address: {error}")
            return None
        conflict = self.used.address_conflict(address, self.defaults.subnet, owner, entry.section.line)
        return address if entry.accept("address", conflict) else None


class UniqueValues:
    """Values that must be unique in a cluster: names, addresses, ports, MAC addresses, serial numbers."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, object], tuple[str, int]] = {}

    def conflict(self, what: str, value: object, owner: str, line: int) -> str | None:
        """Register `value` for `owner`; the error message if it is already taken."""
        key = (what, value)
        if key in self._owners:
            first, where = self._owners[key]
            return f"{what} {value} is already used by {first} (line {where})"
        self._owners[key] = (owner, line)
        return None

    def address_conflict(self, address: IPv4Address, subnet: IPv4Network | None, owner: str, line: int) -> str | None:
        """Like `conflict`, and the address must also be a valid device address on `subnet`."""
        if subnet is not None:
            if address not in subnet:
                return f"address {address} is outside the wired subnet {subnet}"
            if address == subnet.network_address:
                return f"address {address} is the network address of {subnet}; no device can have it"
            if address == subnet.broadcast_address:
                return f"address {address} is the broadcast address of {subnet}; no device can have it"
        return self.conflict("address", address, owner, line)
