"""Android's network as it misleads: interfaces and addresses that are not expected, rules that let in and not out.

Seen from outside the phone: the phone's own programs need not be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from orchestrator.lab import links
from orchestrator.lab.spec import LabSpec, VirtualPhone
from orchestrator.lab.termux import HABITS, told

KEYS = frozenset({"address", "eth", "interface", "routing"})

_MOBILE, _MODEM = "rmnet_data0", "rmnet_ipa0"  # as Qualcomm's driver calls them
_MOBILE_NETWORKS = 250
_RULES = (15900, 29000, 32000)  # preferences of netd's rules: by source, by default network, and the end of the list
_WIRED_TABLE, _DEFAULT_TABLE = 100, 101
_CDC = "usb0"  # what adapters with a CDC driver come up as; Android looks after ethN only
_HEALTHY_CABLE = (f"link set {_CDC} down", f"link set {_CDC} name eth0", "addr flush dev eth0")
_WITHOUT_RULES = tuple(f"rule delete pref {rule}" for rule in _RULES)
_OTHER_SWITCHES = 100  # added to the third number of an address: nobody else has it


@dataclass(frozen=True)
class Wiring:
    """What the scenario says of a phone's network."""

    spec: LabSpec
    phone: VirtualPhone
    scenario: Path

    def apply(self, *, within: int | None = None) -> None:
        """In this process's network namespace, or in that of process `within`. Twice is once."""
        links.undo([*_HEALTHY_CABLE, f"link delete {_MOBILE}", *_WITHOUT_RULES], within=within)
        links.configure([*self._cable(), *self._mobile(), *self._routing()], within=within)

    @property
    def is_healthy(self) -> bool:
        return all(self._told(key) == HABITS[key].default for key in KEYS)

    def _told(self, key: str) -> str:
        return told(self.scenario, key)

    def _cable(self) -> list[str]:
        if self._told("eth") == "usb0":
            return ["link set eth0 down", f"link set eth0 name {_CDC}", f"link set {_CDC} up"]
        return links.addressed(self.phone, self.address, self.spec.mode.network.prefixlen, self.spec.phones)

    @property
    def address(self) -> str:
        """Where the phone answers: not where the inventory says, if a DHCP server gave it another lease."""
        if self._told("address") == "ok":
            return self.phone.address
        return str(IPv4Address(self.phone.address) + (_OTHER_SWITCHES << 8))

    def _mobile(self) -> list[str]:
        """A second interface. Its far end is the modem, which answers nobody."""
        if self._told("interface") == "single":
            return []
        return [
            f"link add name {_MOBILE} type veth peer name {_MODEM}",
            f"link set {_MODEM} addrgenmode none up",
            f"link set {_MOBILE} addrgenmode none up",
            f"addr add {self.mobile_address}/30 dev {_MOBILE}",
        ]

    @property
    def mobile_address(self) -> str:
        block, number = divmod(self.spec.phones.index(self.phone), _MOBILE_NETWORKS)
        return f"10.{200 + block}.{number + 1}.2"

    def _routing(self) -> list[str]:
        """Replies leave where the question came in; whatever the phone begins goes to the default network: nowhere."""
        if self._told("routing") == "both" or self._told("eth") == "usb0":
            return []
        by_source, by_default, at_the_end = _RULES
        return [
            f"route replace {self.spec.mode.network} dev eth0 table {_WIRED_TABLE}",
            f"rule add pref {by_source} from {self.address} lookup {_WIRED_TABLE}",
            f"rule add pref {by_default} iif lo lookup {_DEFAULT_TABLE}",
            f"rule add pref {at_the_end} unreachable",
        ]
