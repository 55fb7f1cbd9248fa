"""Fixes of `doctor --fix`: applied over SSH, then verified by another examination."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import PhoneConnection
from orchestrator.fleet.result import CommandResult
from orchestrator.health.examination import DoctorContext, examine_all
from orchestrator.health.finding import Fix
from orchestrator.health.report import AppliedFix, DoctorReport
from orchestrator.health.scripts import PROCESSES, TERMUX_BASH, read_health_script, run_script_with_fallback
from orchestrator.inventory.model import Phone
from orchestrator.provision import ProvisionOptions, provision
from orchestrator.provision.engine import OnEvent
from orchestrator.provision.resources import read_script
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import last_lines

_LOGIN_TIMEOUT_S: Final = 45.0  # the boot script may first wait 20 s for the wake lock
_MESSAGES: Final = {
    Fix.FINISH_PACKAGES: "finished the interrupted package installation",
    Fix.RESTART_SSHD: "restarted sshd with Termux's environment",
    Fix.CLEAN: "deleted downloaded packages",
    Fix.WAKE_LOCK: "acquired the wake lock",
    Fix.PROVISION: "provisioned",
}
FixFunction = Callable[[PhoneConnection], None]


def apply_fixes(context: DoctorContext, report: DoctorReport, on_event: OnEvent) -> DoctorReport:
    """Apply all fixes of the report, then examine the phones again."""
    applied: list[AppliedFix] = []
    for fix in Fix:
        phones = _phones_with(report, fix)
        if phones:
            applied += _provision(context, phones, on_event) if fix is Fix.PROVISION else _apply(context, fix, phones)
    return _examine_again(context, report, tuple(applied))


def _examine_again(context: DoctorContext, before: DoctorReport, applied: tuple[AppliedFix, ...]) -> DoctorReport:
    """Examines all phones, because they are compared with each other, over new connections with a new environment."""
    with context.open_fleet() as fleet:
        after = examine_all(context, fleet)
    remaining = {(each.check.name, each.phone) for each in after.findings}
    changed = {fix.phone for fix in applied}
    resolved = [
        each for each in before.findings if each.phone in changed and (each.check.name, each.phone) not in remaining
    ]
    return replace(after, seconds=before.seconds + after.seconds, fixes=applied, resolved=tuple(resolved))


def _phones_with(report: DoctorReport, fix: Fix) -> tuple[Phone, ...]:
    return tuple(dict.fromkeys(each.phone for each in report.findings if each.finding.fix is fix))


def _apply(context: DoctorContext, fix: Fix, phones: tuple[Phone, ...]) -> list[AppliedFix]:
    """Over new connections: one that is older than a restarted sshd keeps the environment of the old one."""
    with replace(context, phones=phones).open_fleet() as fleet:
        outcomes = fleet.map(_fix_functions(context)[fix])
    return [
        AppliedFix(outcome.phone, fix, outcome.ok, _MESSAGES[fix] if outcome.ok else f"{fix.value}: {outcome.error}")
        for outcome in outcomes
    ]


def _fix_functions(context: DoctorContext) -> Mapping[Fix, FixFunction]:
    return {
        Fix.FINISH_PACKAGES: finish_packages,
        Fix.RESTART_SSHD: lambda connection: restart_sshd(context, connection),
        Fix.CLEAN: clean,
        Fix.WAKE_LOCK: acquire_wake_lock,
    }


def _provision(context: DoctorContext, phones: tuple[Phone, ...], on_event: OnEvent) -> list[AppliedFix]:
    try:
        report = provision(replace(context, phones=phones), ProvisionOptions(), on_event)
    except ClusterctlError as error:
        return [AppliedFix(phone, Fix.PROVISION, ok=False, message=f"provision: {error.message}") for phone in phones]
    failures = {each.phone: f"provision: {each.failure.error}" for each in report if each.failure}
    return [
        AppliedFix(phone, Fix.PROVISION, phone not in failures, failures.get(phone, _MESSAGES[Fix.PROVISION]))
        for phone in phones
    ]


def finish_packages(connection: PhoneConnection) -> None:
    text = PROCESSES + read_health_script("finish-packages.sh")
    _require_success(run_script_with_fallback(connection, text, timeout=180.0)[0], "dpkg --configure -a")


def clean(connection: PhoneConnection) -> None:
    _require_success(connection.run(["apt-get", "clean"], timeout=60.0), "apt-get clean")


def acquire_wake_lock(connection: PhoneConnection) -> None:
    text = PROCESSES + 'find_sshd\nset -- "$sshd"\n' + read_script("wake-lock")
    _require_success(connection.script(text, timeout=40.0), "termux-wake-lock")


def restart_sshd(context: DoctorContext, connection: PhoneConnection) -> None:
    """Restart sshd and verify it by a new login. If that fails, start a plain sshd over the open session."""
    text = PROCESSES + read_health_script("restart-sshd.sh")
    _require_success(run_script_with_fallback(connection, text, timeout=20.0)[0], "sshd -t")
    deadline = time.monotonic() + _LOGIN_TIMEOUT_S
    while True:
        time.sleep(1.0)
        try:
            return _verify_new_login(context, connection.phone)
        except PhoneError as error:
            if time.monotonic() > deadline:
                connection.run([TERMUX_BASH, "-c", 'exec "${BASH%/*}/sshd"'])
                raise PhoneError(f"cannot log in after sshd was restarted: {error.message}", code=error.code) from error


def _verify_new_login(context: DoctorContext, phone: Phone) -> None:
    with replace(context, phones=(phone,)).open_fleet() as another:
        connection = another.connection(phone)
        connection.run(["true"], check=True)
        with suppress(PhoneError):  # the next examination reports it
            acquire_wake_lock(connection)


def _require_success(result: CommandResult, command: str) -> None:
    if not result.ok:
        output = last_lines(result.stderr, 2) or last_lines(result.stdout, 2)
        raise PhoneError(
            f"{command}: exit code {result.rc}" + (f": {output}" if output else ""), code=ErrorCode.COMMAND_FAILED
        )
