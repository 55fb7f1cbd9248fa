"""The specification of a lab: its virtual phones with their ports, addresses and uids.

`lab up` writes it to lab.json; the daemon and all later commands read it.
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
from orchestrator.lab.config import Arch, LabConfig

CLUSTER_NAME = "lab"
SSH_PORT = 8022
FIRST_OCTET = 77
_FIRST_APP_ID = 100  # Android runs an app as user u0_aNNN with uid 10000 + NNN, where NNN differs between phones
_DEFAULT_PORTS = 48


class Mode(StrEnum):
    ROOT = "root"  # namespaces created by root
    USER = "user"  # namespaces created inside a user namespace
    LOOPBACK = "loopback"  # no namespaces: plain processes on addresses of the loopback interface

    @property
    def network(self) -> IPv4Network:
        """The subnet passed to Open MPI. Of the loopback interface, Open MPI sees only the address 127.0.0.1/8."""
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
    def switch_interface(self) -> str:
        """The switch's end of the phone's veth pair."""
        return f"port{self.switch}-{self.port}"


@dataclass(frozen=True)
class LabSpec:
    mode: Mode
    config: LabConfig
    octet: int = FIRST_OCTET  # differs only if several labs share the loopback interface

    @property
    def _first_address(self) -> IPv4Address:
        return IPv4Address(f"{127 if self.mode is Mode.LOOPBACK else 10}.{self.octet}.0.0")

    @property
    def host_address(self) -> str:
        return str(self._first_address + 1)

    @cached_property
    def phones(self) -> tuple[VirtualPhone, ...]:
        ports = [
            (switch, port)
            for switch, count in enumerate(self.config.phones_per_switch(), start=1)
            for port in range(1, count + 1)
        ]
        return tuple(self._phone(index, switch, port) for index, (switch, port) in enumerate(ports))

    def _phone(self, index: int, switch: int, port: int) -> VirtualPhone:
        address = self._first_address + (switch << 8) + port
        return VirtualPhone(f"p{switch}-{port:02}", switch, port, str(address), 10000 + _FIRST_APP_ID + index)

    def phone(self, name: str) -> VirtualPhone:
        for phone in self.phones:
            if phone.name == name:
                return phone
        raise UsageError(f"the lab has no phone {name!r}", remedy="clusterctl lab status")

    def cluster(self, lab_dir: Path, source: Path) -> Cluster:
        """The lab as an inventory."""
        return Cluster(
            name=CLUSTER_NAME,
            subnet=self.mode.network,
            host=IPv4Address(self.host_address),
            interface=self.mode.interface,
            rate=self.config.rate,
            switches=tuple(self._switch(number) for number in range(1, self.config.switches + 1)),
            source=source,
            lab=lab_dir,
        )

    def _switch(self, number: int) -> Switch:
        phones = tuple(_inventory_phone(phone) for phone in self.phones if phone.switch == number)
        ports = max(_DEFAULT_PORTS, len(phones) + 2)  # two more for the links to neighboring switches
        last = number == self.config.switches
        uplink = None if last else Uplink(ports, f"sw{number + 1}", self.config.uplink)
        return Switch(f"sw{number}", ports, phones, uplink)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LabSpec:
        try:
            raw = json.loads(text)
            config = raw.pop("config")
            return cls(Mode(raw.pop("mode")), LabConfig(**{**config, "arch": Arch(config["arch"])}), **raw)
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                "this lab was created by another version of clusterctl", remedy="clusterctl lab down"
            ) from None


def _inventory_phone(phone: VirtualPhone) -> Phone:
    return Phone(phone.name, f"sw{phone.switch}", phone.port, IPv4Address(phone.address), SSH_PORT, mac=phone.mac)
