"""Network quirks of Android: unexpected interfaces and addresses, and rules that block outbound connections.

They are applied from outside the phone, so the phone itself needs no network tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from orchestrator.lab import links
from orchestrator.lab.spec import LabSpec, VirtualPhone
from orchestrator.lab.termux import QUIRKS, read_setting

KEYS = frozenset({"address", "cellular", "interface", "outbound"})

_CELLULAR, _MODEM = "rmnet_data0", "rmnet_ipa0"  # names used by Qualcomm's driver
_CELLULAR_NETWORKS = 250
_RULES = (15900, 29000, 32000)  # priorities of netd's rules: by source, default network, final
_WIRED_TABLE, _DEFAULT_TABLE = 100, 101
_USB_INTERFACE = "usb0"  # the name of adapters with a CDC driver; Android configures only ethN
_RESET_INTERFACE = (f"link set {_USB_INTERFACE} down", f"link set {_USB_INTERFACE} name eth0", "addr flush dev eth0")
_DELETE_RULES = tuple(f"rule delete pref {rule}" for rule in _RULES)
_ADDRESS_OFFSET = 100  # added to the third octet, which no other phone uses


@dataclass(frozen=True)
class NetworkQuirks:
    """The network settings of one phone."""

    spec: LabSpec
    phone: VirtualPhone
    scenario: Path

    def apply(self, *, netns_pid: int | None = None) -> None:
        """Apply them in the current network namespace, or in that of process `netns_pid`. Idempotent."""
        links.try_configure([*_RESET_INTERFACE, f"link delete {_CELLULAR}", *_DELETE_RULES], netns_pid=netns_pid)
        links.configure(
            [*self._wired_commands(), *self._cellular_commands(), *self._outbound_commands()], netns_pid=netns_pid
        )

    @property
    def is_default(self) -> bool:
        return all(self._value(key) == QUIRKS[key].default for key in KEYS)

    def _value(self, key: str) -> str:
        return read_setting(self.scenario, key)

    def _wired_commands(self) -> list[str]:
        if self._value("interface") == "usb0":
            return ["link set eth0 down", f"link set eth0 name {_USB_INTERFACE}", f"link set {_USB_INTERFACE} up"]
        return links.address_commands(self.phone, self.address, self.spec.mode.network.prefixlen, self.spec.phones)

    @property
    def address(self) -> str:
        """The phone's address. address=changed simulates another DHCP lease than the inventory expects."""
        if self._value("address") == "ok":
            return self.phone.address
        return str(IPv4Address(self.phone.address) + (_ADDRESS_OFFSET << 8))

    def _cellular_commands(self) -> list[str]:
        """A second interface, whose peer (the modem) never answers."""
        if self._value("cellular") == "off":
            return []
        return [
            f"link add name {_CELLULAR} type veth peer name {_MODEM}",
            f"link set {_MODEM} addrgenmode none up",
            f"link set {_CELLULAR} addrgenmode none up",
            f"addr add {self.cellular_address}/30 dev {_CELLULAR}",
        ]

    @property
    def cellular_address(self) -> str:
        block, number = divmod(self.spec.phones.index(self.phone), _CELLULAR_NETWORKS)
        return f"10.{200 + block}.{number + 1}.2"

    def _outbound_commands(self) -> list[str]:
        """Replies use the wired interface. New connections use the default network, which has no route."""
        if self._value("outbound") == "ok" or self._value("interface") == "usb0":
            return []
        by_source, by_default, last = _RULES
        return [
            f"route replace {self.spec.mode.network} dev eth0 table {_WIRED_TABLE}",
            f"rule add pref {by_source} from {self.address} lookup {_WIRED_TABLE}",
            f"rule add pref {by_default} iif lo lookup {_DEFAULT_TABLE}",
            f"rule add pref {last} unreachable",
        ]
