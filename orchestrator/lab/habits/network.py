"""Android's network as it misleads: interfaces that lead nowhere, rules that let in and not out.

Seen from outside the phone: the phone's own programs need not be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab import links
from orchestrator.lab.spec import LabSpec, VirtualPhone
from orchestrator.lab.termux import HABITS, told

KEYS = frozenset({"interface", "routing"})

_MOBILE, _MODEM = "rmnet_data0", "rmnet_ipa0"  # as Qualcomm's driver calls them
_MOBILE_NETWORKS = 250
_RULES = (15900, 29000, 32000)  # preferences of netd's rules: by source, by default network, and the end of the list
_WIRED_TABLE, _DEFAULT_TABLE = 100, 101


@dataclass(frozen=True)
class Wiring:
    """What the scenario says of a phone's network."""

    spec: LabSpec
    phone: VirtualPhone
    scenario: Path

    def apply(self, *, within: int | None = None) -> None:
        """In this process's network namespace, or in that of process `within`. Twice is once."""
        links.undo([f"link delete {_MOBILE}", *(f"rule delete pref {rule}" for rule in _RULES)], within=within)
        links.configure([*self._mobile(), *self._routing()], within=within)

    @property
    def is_healthy(self) -> bool:
        return all(self._told(key) == HABITS[key].default for key in KEYS)

    def _told(self, key: str) -> str:
        return told(self.scenario, key)

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
        if self._told("routing") == "both":
            return []
        by_source, by_default, at_the_end = _RULES
        return [
            f"route replace {self.spec.mode.network} dev eth0 table {_WIRED_TABLE}",
            f"rule add pref {by_source} from {self.phone.address} lookup {_WIRED_TABLE}",
            f"rule add pref {by_default} iif lo lookup {_DEFAULT_TABLE}",
            f"rule add pref {at_the_end} unreachable",
        ]
