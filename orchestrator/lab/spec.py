"""The plan of a lab: which virtual phones exist, where, and what they are to the rest of clusterctl.

Written once to lab.json by `lab up`; the anchor and every later command read it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Cluster, Phone, Switch, Uplink
from orchestrator.lab.shape import Arch, Shape

CLUSTER_NAME = "lab"
SSH_PORT = 8022
FIRST_OCTET = 77
_FIRST_APP_ID = 100  # Android gives an app u0_aNNN, uid 10000 + NNN, and another NNN on every phone
_USUAL_PORTS = 48


class Mode(StrEnum):
    ROOT = "root"  # namespaces made by root
    USER = "user"  # the same inside a user namespace
    LOOPBACK = "loopback"  # no namespaces: plain processes on addresses of the loopback interface

    @property
    def network(self) -> IPv4Network:
        """What Open MPI is told to use: of the loopback interface it knows but the one address, 127.0.0.1/8."""
        return IPv4Network("127.0.0.0/8" if self is Mode.LOOPBACK else "10.77.0.0/16")

    @property
    def interface(self) -> str:
        return "lo" if self is Mode.LOOPBACK else "eth0"


@dataclass(frozen=True)
class VirtualPhone:
    name: str
    switch: int
    port: int
    address: str
    uid: int

    @property
    def user(self) -> str:
        return f"u0_a{self.uid - 10000}"

    @property
    def mac(self) -> str:
        return f"02:77:00:00:{self.switch:02x}:{self.port:02x}"

    @property
    def cable(self) -> str:
        """The switch's end of the phone's cable."""
        return f"port{self.switch}-{self.port}"


@dataclass(frozen=True)
class LabSpec:
    mode: Mode
    shape: Shape
    octet: int = FIRST_OCTET  # another one only where several labs share the loopback interface

    @property
    def _first_address(self) -> IPv4Address:
        return IPv4Address(f"{127 if self.mode is Mode.LOOPBACK else 10}.{self.octet}.0.0")

    @property
    def host_address(self) -> str:
        return str(self._first_address + 1)

    @cached_property
    def phones(self) -> tuple[VirtualPhone, ...]:
        places = [
            (switch, port)
            for switch, count in enumerate(self.shape.phones_per_switch(), start=1)
            for port in range(1, count + 1)
        ]
        return tuple(self._phone(index, switch, port) for index, (switch, port) in enumerate(places))

    def _phone(self, index: int, switch: int, port: int) -> VirtualPhone:
        address = self._first_address + (switch << 8) + port
        return VirtualPhone(f"p{switch}-{port:02}", switch, port, str(address), 10000 + _FIRST_APP_ID + index)

    def phone(self, name: str) -> VirtualPhone:
        for phone in self.phones:
            if phone.name == name:
                return phone
        raise UsageError(f"the lab has no phone {name!r}", remedy="clusterctl lab status")

    def cluster(self, lab_dir: Path, source: Path) -> Cluster:
        """The lab as an inventory describes it."""
        return Cluster(
            name=CLUSTER_NAME,
            subnet=self.mode.network,
            host=IPv4Address(self.host_address),
            interface=self.mode.interface,
            rate=self.shape.rate,
            switches=tuple(self._switch(number) for number in range(1, self.shape.switches + 1)),
            source=source,
            lab=lab_dir,
        )

    def _switch(self, number: int) -> Switch:
        phones = tuple(_inventory_phone(phone) for phone in self.phones if phone.switch == number)
        ports = max(_USUAL_PORTS, len(phones) + 2)  # two ports for the cables to its neighbours
        last = number == self.shape.switches
        uplink = None if last else Uplink(ports, f"sw{number + 1}", self.shape.uplink)
        return Switch(f"sw{number}", ports, phones, uplink)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LabSpec:
        try:
            raw = json.loads(text)
            shape = raw.pop("shape")
            return cls(Mode(raw.pop("mode")), Shape(**{**shape, "arch": Arch(shape["arch"])}), **raw)
        except (ValueError, KeyError, TypeError):
            raise UsageError("another version of clusterctl made this lab", remedy="clusterctl lab down") from None


def _inventory_phone(phone: VirtualPhone) -> Phone:
    return Phone(phone.name, f"sw{phone.switch}", phone.port, IPv4Address(phone.address), SSH_PORT, mac=phone.mac)
