"""`clusterctl lab set` and `lab power`: change what a phone reports, or inject a fault."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.lab import fault_injection
from orchestrator.lab.client import read_spec, request, wait_for_sshd
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.spec import Mode
from orchestrator.lab.termux import QUIRKS, SETTINGS, read_setting, write_setting

FAULTS: dict[str, tuple[str, ...]] = {
    "apt": ("prompt", "ok"),
    "disk": ("full", "free"),
    "hostkey": ("new", "shared:PHONE"),
    "link": ("down", "up"),
    "packages": ("old", "ok"),
    "sshd": ("down", "up"),
}
_FAULT_ACTIONS: dict[tuple[str, str], Callable[[Path, str], None]] = {
    ("apt", "prompt"): fault_injection.start_dpkg_prompt,
    ("apt", "ok"): fault_injection.finish_dpkg_prompt,
    ("hostkey", "new"): fault_injection.regenerate_host_keys,
    ("packages", "old"): fault_injection.set_outdated_package,
    ("packages", "ok"): fault_injection.restore_package,
}
_SHARED_PREFIX = "shared:"
_WORKS_ON_LOOPBACK = frozenset(
    {"boot", "doze", "hardlinks", "penalties", "phantom", "platform", "preload", "sysvipc", "throttle", "tmpdir"}
)


def apply_settings(lab_dir: Path, phone: str, assignments: Sequence[str]) -> None:
    """Apply `key=value` assignments to a phone. All are validated before the first takes effect."""
    read_spec(lab_dir).phone(phone)
    actions = [_prepare(lab_dir, phone, *_split(assignment)) for assignment in assignments]
    for action in actions:
        action()


def set_power(lab_dir: Path, phone: str, state: str) -> None:
    """Power a phone on or off. After power-on, wait for its sshd unless boot=broken."""
    read_spec(lab_dir).phone(phone)
    request(lab_dir, {"op": "power", "phone": phone, "state": state})
    if state == "on" and read_setting(LabLayout(lab_dir).phone(phone).scenario, "boot") == "ok":
        wait_for_sshd(lab_dir, [phone])


def _split(assignment: str) -> tuple[str, str]:
    key, equals, value = assignment.partition("=")
    if not equals:
        raise UsageError(f"{assignment!r} is not key=value", remedy="clusterctl lab set p1-01 thermal.cpu=71.5")
    return key, value


def _prepare(lab_dir: Path, phone: str, key: str, value: str) -> Callable[[], None]:
    """Validate an assignment and return the function that applies it."""
    if key not in FAULTS:
        return _prepare_setting(lab_dir, phone, key, value)
    if key == "hostkey" and value.startswith(_SHARED_PREFIX):
        other = read_spec(lab_dir).phone(value.removeprefix(_SHARED_PREFIX)).name
        return lambda: fault_injection.copy_host_keys(lab_dir, phone, other)
    if value not in FAULTS[key]:
        raise UsageError(f"{key} cannot be {value!r}", remedy=" or ".join(f"{key}={each}" for each in FAULTS[key]))
    if act := _FAULT_ACTIONS.get((key, value)):
        return lambda: act(lab_dir, phone)
    return lambda: _request_fault(lab_dir, phone, key, value)


def _prepare_setting(lab_dir: Path, phone: str, key: str, value: str) -> Callable[[], None]:
    if key not in SETTINGS:
        close = difflib.get_close_matches(key, [*FAULTS, *SETTINGS], n=1)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join([*FAULTS, *SETTINGS])}"
        raise UsageError(f"unknown setting {key!r}", remedy=hint)
    if not SETTINGS[key].accepts(value):
        raise UsageError(f"{key} cannot be {value!r}", remedy=f"give {SETTINGS[key].expects}")
    files = LabLayout(lab_dir).phone(phone)
    if key in QUIRKS:
        _require_mode(read_spec(lab_dir).mode, key)
        return lambda: _set_quirk(lab_dir, phone, key, value)
    return lambda: write_setting(files.scenario, files.sys_class, key, value)


def _require_mode(mode: Mode, key: str) -> None:
    if mode is Mode.LOOPBACK and key not in _WORKS_ON_LOOPBACK:
        remedy = "run the lab where namespaces are allowed: docs/guide/lab.md"
        raise ClusterctlError(f"{key}= needs namespaces, and this lab runs in loopback mode", remedy=remedy)


def _set_quirk(lab_dir: Path, phone: str, key: str, value: str) -> None:
    """Store the value, so that it survives a power cycle, then apply it. Restore the old value on failure."""
    files = LabLayout(lab_dir).phone(phone)
    before = read_setting(files.scenario, key)
    write_setting(files.scenario, files.sys_class, key, value)
    try:
        reply, _ = request(lab_dir, {"op": "quirk", "phone": phone, "key": key})
    except ClusterctlError:
        write_setting(files.scenario, files.sys_class, key, before)
        raise
    if reply.get("sshd") == "restarted":
        wait_for_sshd(lab_dir, [phone])


def _request_fault(lab_dir: Path, phone: str, key: str, value: str) -> None:
    request(lab_dir, {"op": key, "phone": phone, "state": value})
