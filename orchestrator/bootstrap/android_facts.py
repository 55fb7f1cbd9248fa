"""Facts about a phone's Android, from one script over adb: provisioning/scripts/android.sh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.bootstrap.adb import AdbError, Device
from orchestrator.bootstrap.apk.folder import NAMES
from orchestrator.inventory import grammar
from orchestrator.provision.fact_parsing import FactLines, parse_integer
from orchestrator.provision.resources import read_script
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import last_lines, one_line

_GRANT: Final = re.compile(r"android\.permission\.([A-Z_]+): granted=true.*")
_ETHERNET: Final = re.compile(r"link/ether ([0-9a-f:]{17})\b")
_SCRIPT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class App:
    """An installed Android package."""

    sha256: str  # of its APK
    installer: str = ""
    opened: bool = False  # Android does not let an app run by itself before a person has opened it
    grants: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AndroidFacts:
    serial: str
    sdk: int
    release: str
    model: str
    abis: frozenset[str]
    boot_id: str  # changes with every boot
    booted: bool
    unlocked: bool  # since the last boot; before that, apps have no access to their data
    screen_lock: bool  # a PIN, pattern or password
    disk_free_kb: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # of the global table
    phantom_limit: str = ""
    sync_disabled: bool = False
    whitelist: frozenset[str] = frozenset()  # exempt from battery optimization
    apps: Mapping[str, App] = field(default_factory=dict)
    mac: str | None = None  # of the wired interface, if an adapter is plugged in
    run_as: str = ""  # the uid that run-as reports, or its error
    unpacked: bool = False  # Termux has unpacked its programs

    @property
    def device(self) -> str:
        return one_line(f"{self.model}, Android {self.release}", 80)


def collect_android_facts(device: Device, interface: str) -> AndroidFacts:
    command = ("sh", "-c", read_script("android"), "clusterctl", interface, *NAMES)
    result = device.shell(*command, timeout=_SCRIPT_SECONDS)
    return parse_android_facts(result.stdout, result.summary)


def parse_android_facts(output: str, error: str = "") -> AndroidFacts:
    """Raises AdbError if the output is incomplete or has no valid serial number. `error` is quoted then."""
    lines = FactLines.parse(output)
    if not ("begin" in lines and "end" in lines):
        raise AdbError(
            f"the facts script did not finish: {error or last_lines(output, 1) or 'nothing was printed'}",
            code=ErrorCode.BAD_ANSWER,
            remedy="unplug the phone, plug it in, then run clusterctl bootstrap again",
        )
    props = dict(lines.pairs("prop"))
    sync = next(iter(lines.pairs("sync")), ("", ""))
    return AndroidFacts(
        serial=_serial(props.get("ro.serialno", "")),
        sdk=parse_integer(props.get("ro.build.version.sdk", "")) or 0,
        release=props.get("ro.build.version.release", ""),
        model=props.get("ro.product.model", ""),
        abis=frozenset(props.get("ro.product.cpu.abilist", "").split(",")),
        boot_id=lines.text("boot"),
        booted=props.get("sys.boot_completed") == "1",
        unlocked=lines.text("user") in {"RUNNING_UNLOCKED", ""},
        screen_lock=lines.text("lock_secure") == "true",
        disk_free_kb=lines.integer("disk_kb"),
        settings=dict(lines.pairs("setting")),
        phantom_limit=lines.text("phantom"),
        sync_disabled=sync[0] == "persistent" or sync[1] == "true",
        whitelist=frozenset(name for (entry,) in lines.rows("whitelist", 1) for name in entry.split(",")[1:2]),
        apps={name: _app(digest, lines, name) for name, digest in lines.pairs("package") if name in NAMES},
        mac=_mac(lines.text("link")),
        run_as=lines.text("run_as"),
        unpacked=lines.text("login") == "yes",
    )


def _serial(text: str) -> str:
    try:
        return grammar.serial(text)
    except ValueError as error:
        raise AdbError(
            f"the phone reports an invalid serial number: {text[:40]!r}", code=ErrorCode.BAD_ANSWER
        ) from error


def _app(digest: str, lines: FactLines, package: str) -> App:
    about = [line for name, line in lines.pairs("about") if name == package]
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
