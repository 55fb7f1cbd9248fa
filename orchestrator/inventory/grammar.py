"""Parse single values. Each function returns the value or raises ValueError with what is allowed."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError

LARGEST_SWITCH = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PORTS_LIKE = re.compile(r"[0-9]+(-[0-9]+)?")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(k|m|g)bit")
_SCALE = {"k": 10**3, "m": 10**6, "g": 10**9}
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_PLACEHOLDER = re.compile(r"\{(?P<word>[^{}+:-]*)(?P<offset>[+-][0-9]{1,6})?(?P<pad>:0?[0-9])?\}")
_PLACEHOLDERS = "{port}, {port:02}, {port+100} and {switch}"
PORTS = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*")
_HOST_KEY_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")


def name(text: str) -> str:
    """A name that is safe as a file name, as an ssh argument and in `--limit`."""
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"'{text}' is not a usable name: letters, digits, '.', '_' and '-', "
            "starting with a letter or digit, at most 63 characters"
        )
    if _PORTS_LIKE.fullmatch(text):
        raise ValueError(f"'{text}' is not a usable name: --limit would read it as port numbers; add a letter")
    return text


def integer(low: int, high: int, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(f"'{text}' is not a whole number")
    if not low <= (number := int(text)) <= high:
        raise ValueError(f"{number} is out of range: {low} to {high}")
    return number


def port_count(text: str) -> int:
    return integer(1, LARGEST_SWITCH, text)


def port_number(text: str) -> int:
    return integer(1, LARGEST_SWITCH, text)


def tcp_port(text: str) -> int:
    return integer(1, 65535, text)


def rate(text: str) -> str:
    bits_per_second(text)
    return text


def bits_per_second(text: str) -> int:
    match = _RATE.fullmatch(text)
    if not match or float(match[1]) == 0:
        raise ValueError(f"'{text}' is not a rate; write one such as 100mbit, 1gbit or 2.5gbit")
    return round(float(match[1]) * _SCALE[match[2]])


def address(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except AddressValueError as error:
        raise ValueError(f"'{text}' is not an IPv4 address") from error


def subnet(text: str) -> IPv4Network:
    try:
        network = IPv4Network(text, strict=False)
    except (AddressValueError, NetmaskValueError) as error:
        raise ValueError(f"'{text}' is not an IPv4 subnet; write one such as 10.77.0.0/16") from error
    if "/" not in text or network.prefixlen > 30:
        raise ValueError(f"subnet '{text}' has no room for a host and a phone; write one such as 10.77.0.0/16")
    if text.partition("/")[0] != str(network.network_address):
        raise ValueError(f"'{text}' is a host address, not a subnet; did you mean {network}?")
    return network


def mac(text: str) -> str:
    """A MAC address of one device, in lower case with colons."""
    plain = text.lower().replace("-", ":")
    if not _MAC.fullmatch(plain):
        raise ValueError(f"'{text}' is not a MAC address; write one such as 02:1a:9f:00:3c:55")
    if int(plain[:2], 16) & 1 or plain == "00:00:00:00:00:00":
        raise ValueError(f"MAC address {plain} is a multicast, broadcast or null address; no phone has it")
    return plain


def serial(text: str) -> str:
    """As `adb devices` prints it."""
    return _matching(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,63}", "serial number", "letters, digits, '.', ':', '_', '-'", text)


def host_key(text: str) -> str:
    """As in a phone's ssh_host_ed25519_key.pub, without the comment."""
    kind, _, blob = text.partition(" ")
    try:
        data = b64decode(blob, validate=True)
    except ValueError:
        data = b""
    if kind not in _HOST_KEY_KINDS or not data.startswith(len(kind).to_bytes(4, "big") + kind.encode()):
        raise ValueError(f"'{text}' is not a host key; write one such as ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA…")
    return text


def interface(text: str) -> str:
    return _matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", "network interface", "one such as eth0", text)


def user(text: str) -> str:
    return _matching(r"[A-Za-z_][A-Za-z0-9._-]{0,31}", "login name", "one such as u0_a120", text)


def path(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} is not a path")
    return text


def _matching(pattern: str, what: str, allowed: str, text: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError(f"'{text}' is not a {what}: {allowed}")
    return text


def has_port_placeholder(template: str) -> bool:
    return any(match["word"] == "port" for match in _PLACEHOLDER.finditer(template))


def template(text: str) -> str:
    """A name or address of a port range: 'p1-{port:02}', '10.77.1.{port+100}'."""
    for match in _PLACEHOLDER.finditer(text):
        if match["word"] != "port" and (match["word"] != "switch" or match["offset"] or match["pad"]):
            raise ValueError(f"unknown placeholder {match[0]}; allowed: {_PLACEHOLDERS}")
    rest = _PLACEHOLDER.sub("", text)
    if "{" in rest or "}" in rest:
        raise ValueError(f"'{text}' has an unmatched brace; allowed placeholders: {_PLACEHOLDERS}")
    return text


def fill_template(template: str, switch: str, port: int) -> str:
    def value(match: re.Match[str]) -> str:
        if match["word"] == "switch":
            return switch
        width = int((match["pad"] or ":0")[1:])
        return f"{port + int(match['offset'] or 0):0{width}}"

    return _PLACEHOLDER.sub(value, template)


def parse_ports(text: str, last: int) -> tuple[int, ...]:
    """The ports of a list such as '1-8,12', ascending, none above `last`."""
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
