"""What Android says of itself: one script over adb, one round trip; everything else is computed from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.bootstrap.adb import AdbError, Device
from orchestrator.bootstrap.apk.folder import NAMES
from orchestrator.fleet.sanitize import last_lines, printable
from orchestrator.inventory import grammar
from orchestrator.provision.resources import script
from phone_agent.contract.errors import ErrorCode

_GRANT: Final = re.compile(r"android\.permission\.([A-Z_]+): granted=true.*")
_ETHERNET: Final = re.compile(r"link/ether ([0-9a-f:]{17})\b")
_LOOK_SECONDS: Final = 60.0


@dataclass(frozen=True)
class App:
    """An installed package."""

    sha256: str  # of its APK
    installer: str = ""
    opened: bool = False  # Android lets an app that was never opened do nothing by itself
    grants: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Seen:
    serial: str
    sdk: int
    release: str
    model: str
    abis: frozenset[str]
    boot: str  # another one after every start
    booted: bool
    unlocked: bool  # since the last start: before it, apps have no data
    locked: bool  # its screen lock has a secret
    disk_free_kb: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # of the global table
    phantom_limit: str = ""
    sync_disabled: bool = False
    whitelist: frozenset[str] = frozenset()
    apps: Mapping[str, App] = field(default_factory=dict)
    mac: str | None = None  # of the wired interface, where it is plugged in
    run_as: str = ""  # the uid it gives, or why it does not
    unpacked: bool = False  # Termux's own programs

    @property
    def told(self) -> str:
        return printable(f"{self.model}, Android {self.release}")[:80]


def look(device: Device, interface: str) -> Seen:
    done = device.shell("sh", "-c", script("android"), "clusterctl", interface, *NAMES, timeout=_LOOK_SECONDS)
    return parse_seen(done.stdout, done.said)


def parse_seen(output: str, said: str = "") -> Seen:
    """Lines of other origin are passed over. Raises AdbError when it is not whole, or not what Android says."""
    lines = [line.split("\t") for line in output.splitlines() if "\t" in line]
    keys = {line[0] for line in lines}
    if not {"begin", "end"} <= keys:
        raise AdbError(
            f"its description broke off: {said or last_lines(output, 1) or 'nothing was printed'}",
            code=ErrorCode.BAD_ANSWER,
            remedy="plug the phone out and in again, then run clusterctl bootstrap again",
        )
    single = {key: values[0] for key, *values in lines if values}
    props = dict(_pairs(lines, "prop"))
    sync = next(_pairs(lines, "sync"), ("", ""))
    return Seen(
        serial=_serial(props.get("ro.serialno", "")),
        sdk=int(props["ro.build.version.sdk"]) if props.get("ro.build.version.sdk", "").isdecimal() else 0,
        release=props.get("ro.build.version.release", ""),
        model=props.get("ro.product.model", ""),
        abis=frozenset(props.get("ro.product.cpu.abilist", "").split(",")),
        boot=single.get("boot", ""),
        booted=props.get("sys.boot_completed") == "1",
        unlocked=single.get("user", "") in {"RUNNING_UNLOCKED", ""},
        locked=single.get("lock_secure") == "true",
        disk_free_kb=int(single["disk_kb"]) if single.get("disk_kb", "").isdecimal() else None,
        settings=dict(_pairs(lines, "setting")),
        phantom_limit=single.get("phantom", ""),
        sync_disabled=sync[0] == "persistent" or sync[1] == "true",
        whitelist=frozenset(name for key, *row in lines if key == "whitelist" for name in row[0].split(",")[1:2]),
        apps={name: _app(digest, lines, name) for name, digest in _pairs(lines, "package") if name in NAMES},
        mac=_mac(single.get("link", "")),
        run_as=single.get("run_as", ""),
        unpacked=single.get("login") == "yes",
    )


def _pairs(lines: list[list[str]], key: str) -> Iterator[tuple[str, str]]:
    return ((line[1], line[2]) for line in lines if line[0] == key and len(line) == 3)


def _serial(text: str) -> str:
    try:
        return grammar.serial(text)
    except ValueError as error:
        raise AdbError(
            f"it says no serial number that could be one: {text[:40]!r}", code=ErrorCode.BAD_ANSWER
        ) from error


def _app(digest: str, lines: list[list[str]], package: str) -> App:
    about = [line for name, line in _pairs(lines, "about") if name == package]
    values = dict(line.split("=", 1) for line in about if "=" in line)
    user = next((line for line in about if line.startswith("User 0:")), "")
    return App(
        sha256=digest,
        installer=values.get("installerPackageName", ""),
        opened="stopped=false" in user.split() and "notLaunched=true" not in user.split(),
        grants=frozenset(match[1] for line in about if (match := _GRANT.fullmatch(line))),
    )


def _mac(text: str) -> str | None:
    found = _ETHERNET.search(text)
    try:
        return grammar.mac(found[1]) if found else None
    except ValueError:
        return None
