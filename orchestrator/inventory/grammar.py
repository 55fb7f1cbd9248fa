"""Parse single values. Each function returns the value or raises ValueError with what is allowed."""

from __future__ import annotations

import re
from base64 import b64decode
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError

LARGEST_SWITCH = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PORTS_LIKE = re.compile(r"[0-9]+(-[0-9]+)?")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(k|m|g)bit")
_SCALE = {"k": 10**3, "m": 10**6, "g": 10**9}
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
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
