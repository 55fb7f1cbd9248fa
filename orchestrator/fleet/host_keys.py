"""Pinned host keys (trust on first use).

The file has the format of OpenSSH known_hosts, one line per phone, with the name of the phone as the comment:

    [10.77.1.3]:8022 ssh-ed25519 AAAA… p1-03 sw1:3

Lines that are not of this form (hashed names, markers) are preserved and never match.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import Phase
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.files import write_bytes


@dataclass(frozen=True)
class HostKey:
    kind: str  # ssh-ed25519
    blob: str  # base64, as in the file

    @property
    def fingerprint(self) -> str:
        try:
            digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        except ValueError:
            return "unreadable"
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class Pin:
    host: str  # [10.77.1.3]:8022
    key: HostKey
    owner: str  # 'p1-03 sw1:3', or the host where a line has no comment


def host_name(phone: Phone) -> str:
    return f"[{phone.address}]:{phone.ssh_port}" if phone.ssh_port != 22 else str(phone.address)


class HostKeys:
    """Read once and shared by all threads; the file is rewritten as a whole, under a lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._pins = _index(_read(path))

    def pinned(self, phone: Phone) -> HostKey | None:
        """The expected key; a `host_key` in the inventory takes precedence over a pinned one."""
        if phone.host_key:
            return HostKey(*phone.host_key.split())
        pin = self._pins.get(host_name(phone))
        return pin.key if pin else None

    def duplicates(self, phone: Phone) -> tuple[str, ...]:
        """Other phones that are pinned with the same key."""
        key = self.pinned(phone)
        return tuple(self._others(phone, key)) if key else ()

    def accept(self, phone: Phone, key: HostKey) -> None:
        """Pin a new key. Rejects a key that another phone already uses."""
        with self._lock, _locked(self._path):
            lines = _read(self._path)
            self._pins = _index(lines)
            if others := self._others(phone, key):
                raise cloned(others)
            lines.append(f"{host_name(phone)} {key.kind} {key.blob} {phone.name} {phone.where}")
            self._save(lines)

    def forget(self, phones: Iterable[Phone]) -> tuple[Phone, ...]:
        """Remove pins; returns the phones that were pinned."""
        with self._lock, _locked(self._path):
            lines = _read(self._path)
            self._pins = _index(lines)
            gone = {host_name(phone): phone for phone in phones if host_name(phone) in self._pins}
            if gone:
                self._save([kept for line in lines if (kept := _without(line, gone.keys()))])
            return tuple(gone.values())

    def _others(self, phone: Phone, key: HostKey) -> list[str]:
        mine = host_name(phone)
        return [pin.owner for pin in self._pins.values() if pin.key == key and pin.host != mine]

    def _save(self, lines: list[str]) -> None:
        write_bytes(self._path, "".join(f"{line}\n" for line in lines).encode())
        self._pins = _index(lines)


class HostKeyError(PhoneError):
    """The host key does not prove that this is the expected phone."""

    def __init__(self, message: str, *, code: ErrorCode, remedy: str, shown: HostKey | None = None) -> None:
        super().__init__(message, code=code, phase=Phase.HOSTKEY, remedy=remedy)
        self.shown = shown


def changed(phone: Phone, pinned: HostKey, shown: HostKey) -> HostKeyError:
    return HostKeyError(
        f"host key changed: pinned {pinned.fingerprint}, presented {shown.fingerprint}; "
        "either the phone was set up again, or another device answers at its address",
        code=ErrorCode.HOST_KEY_CHANGED,
        shown=shown,
        remedy=f"clusterctl hosts forget {phone.name}"
        if phone.host_key is None
        else f"if you set it up again: clusterctl bootstrap, or correct the host_key of {phone.where} in the inventory",
    )


def unknown(phone: Phone) -> HostKeyError:
    remedy = f"clusterctl provision --limit {phone.name}"
    return HostKeyError("host key not known yet", remedy=remedy, code=ErrorCode.HOST_KEY_UNKNOWN)


def unreadable(phone: Phone) -> HostKeyError:
    remedy = f"clusterctl hosts forget {phone.name}"
    return HostKeyError("the pinned host key is unreadable", code=ErrorCode.HOST_KEY_UNREADABLE, remedy=remedy)


def cloned(others: Iterable[str]) -> HostKeyError:
    return HostKeyError(
        f"same host key as {', '.join(others)}: Termux was copied from one phone to the other, "
        "so each could impersonate the other",
        code=ErrorCode.HOST_KEY_DUPLICATE,
        remedy="on this phone, in Termux: rm $PREFIX/etc/ssh/ssh_host_*; ssh-keygen -A; pkill sshd; sshd",
    )


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _index(lines: Iterable[str]) -> dict[str, Pin]:
    return {pin.host: pin for line in lines for pin in _pins(line)}


def _pins(line: str) -> Iterator[Pin]:
    if line.startswith(("#", "@", "|")) or len(fields := line.split()) < 3:
        return
    hosts, kind, blob, *comment = fields
    for host in hosts.split(","):
        yield Pin(host, HostKey(kind, blob), " ".join(comment) or host)


def _without(line: str, hosts: Iterable[str]) -> str | None:
    """The line without these hosts; None if no host is left."""
    if not any(pin.host in hosts for pin in _pins(line)):
        return line
    names, rest = line.split(maxsplit=1)
    left = [name for name in names.split(",") if name not in hosts]
    return f"{','.join(left)} {rest}" if left else None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Several clusterctl processes may pin keys at the same time."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (path.parent / ".known_hosts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
