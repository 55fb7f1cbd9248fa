"""Port lists as people write them: '1-8,12'."""

from __future__ import annotations

import re
from collections.abc import Iterable

PORTS = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*")


def parse_ports(text: str, last: int) -> tuple[int, ...]:
    """The ports of a list, ascending, none above `last`. Raises ValueError with what is wrong."""
    compact = text.replace(" ", "")
    if not PORTS.fullmatch(compact):
        raise ValueError(f"'{text}' is not a port list; write one such as 7, 1-8 or 1-8,12")
    ports: set[int] = set()
    for part in compact.split(","):
        ports |= _span(part, last, ports)
    return tuple(sorted(ports))


def parse_port(text: str, last: int) -> int:
    ports = parse_ports(text, last)
    if len(ports) > 1:
        raise ValueError(f"'{text}' is {len(ports)} ports; write 'ports: {text}'")
    return ports[0]


def _span(part: str, last: int, taken: set[int]) -> set[int]:
    low, _, high = part.partition("-")
    first, final = int(low), int(high or low)
    if final < first:
        raise ValueError(f"port range {part} runs backwards; write {final}-{first}")
    if first < 1:
        raise ValueError("ports are numbered from 1")
    if final > last:
        raise ValueError(f"port {final} is beyond the switch's last port, {last}")
    span = set(range(first, final + 1))
    if both := span & taken:
        raise ValueError(f"port {min(both)} is listed twice")
    return span


def fold_ports(ports: Iterable[int]) -> str:
    """The shortest list: 1, 2, 3, 5 become '1-3,5'."""
    spans: list[list[int]] = []
    for port in sorted(set(ports)):
        if spans and port == spans[-1][1] + 1:
            spans[-1][1] = port
        else:
            spans.append([port, port])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
