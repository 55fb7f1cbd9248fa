"""`clusterctl lab set`: what a phone reports, and what goes wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.lab import fault_injection
from orchestrator.lab.client import read_spec, request
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.spec import Mode
from orchestrator.lab.status import await_sshd
from orchestrator.lab.termux import HABITS, KEYS, apply_scenario, told

FAULTS: dict[str, tuple[str, ...]] = {
    "apt": ("prompt", "ok"),
    "disk": ("full", "free"),
    "hostkey": ("new", "shared:PHONE"),
    "link": ("down", "up"),
    "packages": ("old", "ok"),
    "sshd": ("down", "up"),
}
_BY_HAND: dict[tuple[str, str], Callable[[Path, str], None]] = {
    ("apt", "prompt"): fault_injection.leave_at_prompt,
    ("apt", "ok"): fault_injection.leave_prompt,
    ("hostkey", "new"): fault_injection.renew_host_keys,
    ("packages", "old"): fault_injection.age_packages,
    ("packages", "ok"): fault_injection.renew_packages,
}
_SHARED = "shared:"
_ON_LOOPBACK_TOO = frozenset(
    {"boot", "links", "penalties", "phantom", "platform", "preload", "sleeps", "sysv", "throttle", "tmpdir"}
)


def change(lab_dir: Path, phone: str, assignments: Sequence[str]) -> None:
    """Applies `key=value`s to a phone. All are checked before the first takes effect."""
    read_spec(lab_dir).phone(phone)
    steps = [_step(lab_dir, phone, *_split(assignment)) for assignment in assignments]
    for step in steps:
        step()


def set_power(lab_dir: Path, phone: str, state: str) -> None:
    """Switches a phone on or off; when on, waits for its sshd as long as a boot may take."""
    read_spec(lab_dir).phone(phone)
    request(lab_dir, {"op": "power", "phone": phone, "state": state})
    if state == "on" and told(LabLayout(lab_dir).phone(phone).scenario, "boot") == "ok":
        await_sshd(lab_dir, [phone])


def _split(assignment: str) -> tuple[str, str]:
    key, equals, value = assignment.partition("=")
    if not equals:
        raise UsageError(f"{assignment!r} is not key=value", remedy="clusterctl lab set p1-01 thermal.cpu=71.5")
    return key, value


def _step(lab_dir: Path, phone: str, key: str, value: str) -> Callable[[], None]:
    if key not in FAULTS:
        return _report(lab_dir, phone, key, value)
    if key == "hostkey" and value.startswith(_SHARED):
        other = read_spec(lab_dir).phone(value.removeprefix(_SHARED)).name
        return lambda: fault_injection.share_host_keys(lab_dir, phone, other)
    if value not in FAULTS[key]:
        raise UsageError(f"{key} cannot be {value!r}", remedy=" or ".join(f"{key}={each}" for each in FAULTS[key]))
    if act := _BY_HAND.get((key, value)):
        return lambda: act(lab_dir, phone)
    return lambda: _ask(lab_dir, phone, key, value)


def _report(lab_dir: Path, phone: str, key: str, value: str) -> Callable[[], None]:
    """What the phone says of itself from now on."""
    if key not in KEYS:
        close = difflib.get_close_matches(key, [*FAULTS, *KEYS], n=1)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join([*FAULTS, *KEYS])}"
        raise UsageError(f"a phone has no setting {key!r}", remedy=hint)
    if not KEYS[key].accepts(value):
        raise UsageError(f"{key} cannot be {value!r}", remedy=f"give {KEYS[key].expects}")
    own = LabLayout(lab_dir).phone(phone)
    if key in HABITS:
        _check_possible(read_spec(lab_dir).mode, key)
        return lambda: _acquire_habit(lab_dir, phone, key, value)
    return lambda: apply_scenario(own.scenario, own.sys_class, key, value)


def _check_possible(mode: Mode, key: str) -> None:
    if mode is Mode.LOOPBACK and key not in _ON_LOOPBACK_TOO:
        remedy = "run the lab where namespaces are allowed: docs/guide/lab.md"
        raise ClusterctlError(f"{key}= needs phones with namespaces of their own, and this lab has none", remedy=remedy)


def _acquire_habit(lab_dir: Path, phone: str, key: str, value: str) -> None:
    """Written down, so that the phone keeps it when it is switched off and on; then brought about."""
    own = LabLayout(lab_dir).phone(phone)
    before = told(own.scenario, key)
    apply_scenario(own.scenario, own.sys_class, key, value)
    try:
        reply, _ = request(lab_dir, {"op": "habit", "phone": phone, "key": key})
    except ClusterctlError:
        apply_scenario(own.scenario, own.sys_class, key, before)
        raise
    if reply.get("sshd") == "restarted":
        await_sshd(lab_dir, [phone])


def _ask(lab_dir: Path, phone: str, key: str, value: str) -> None:
    request(lab_dir, {"op": key, "phone": phone, "state": value})
