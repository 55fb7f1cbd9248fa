"""Values that must be unique in a cluster: names, addresses, ports, MAC addresses, serial numbers."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network


class UniqueValues:
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
