"""What can be done about findings over SSH; each is verified by looking again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import PhoneConnection
from orchestrator.fleet.sanitize import last_lines
from orchestrator.health.examination import Ward, examine_all
from orchestrator.health.finding import Fix
from orchestrator.health.report import Deed, Report
from orchestrator.health.scripts import PROCESSES, TERMUX_BASH, script_anyhow, text_of
from orchestrator.inventory.model import Phone
from orchestrator.provision import ProvisionOptions, provision
from orchestrator.provision.events import OnEvent
from orchestrator.provision.resources import read_script
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet.result import CommandResult

_NEW_LOGIN_S: Final = 45.0  # the boot script may first wait 20 s for the wake lock
_WORDS: Final = {
    Fix.FINISH_PACKAGES: "finished the interrupted installation",
    Fix.RESTART_SSHD: "started sshd again, with Termux's environment",
    Fix.CLEAN: "removed downloaded packages",
    Fix.WAKE_LOCK: "took the wake lock",
    Fix.PROVISION: "provisioned",
}
Doer = Callable[[PhoneConnection], None]


def mend(ward: Ward, report: Report, on_event: OnEvent) -> Report:
    """Applies all that can be applied, and looks at those phones again."""
    deeds: list[Deed] = []
    for fix in Fix:
        phones = _with(report, fix)
        if phones:
            deeds += _provision(ward, phones, on_event) if fix is Fix.PROVISION else _apply(ward, fix, phones)
    return _looked_again(ward, report, tuple(deeds))


def _looked_again(ward: Ward, before: Report, deeds: tuple[Deed, ...]) -> Report:
    """At all phones, which are compared with each other; over new connections: old ones keep what they began with."""
    with ward.fleet() as fleet:
        after = examine_all(ward, fleet)
    still = {(each.check.name, each.phone) for each in after.found}
    touched = {deed.phone for deed in deeds}
    gone = [each for each in before.found if each.phone in touched and (each.check.name, each.phone) not in still]
    return replace(after, seconds=before.seconds + after.seconds, deeds=deeds, cured=tuple(gone))


def _with(report: Report, fix: Fix) -> tuple[Phone, ...]:
    return tuple(dict.fromkeys(each.phone for each in report.found if each.finding.fix is fix))


def _apply(ward: Ward, fix: Fix, phones: tuple[Phone, ...]) -> list[Deed]:
    """Over connections of its own: one that is older than a new sshd still has the old one's environment."""
    with replace(ward, phones=phones).fleet() as fleet:
        outcomes = fleet.map(_doers(ward)[fix])
    return [
        Deed(outcome.phone, fix, outcome.ok, _WORDS[fix] if outcome.ok else f"{fix.value}: {outcome.error}")
        for outcome in outcomes
    ]


def _doers(ward: Ward) -> Mapping[Fix, Doer]:
    return {
        Fix.FINISH_PACKAGES: finish_packages,
        Fix.RESTART_SSHD: lambda connection: restart_sshd(ward, connection),
        Fix.CLEAN: clean,
        Fix.WAKE_LOCK: wake_lock,
    }


def _provision(ward: Ward, phones: tuple[Phone, ...], on_event: OnEvent) -> list[Deed]:
    try:
        report = provision(replace(ward, phones=phones), ProvisionOptions(), on_event)
    except ClusterctlError as error:
        return [Deed(phone, Fix.PROVISION, ok=False, said=f"provision: {error.message}") for phone in phones]
    told = {each.phone: f"provision: {each.failure.error}" for each in report if each.failure}
    return [Deed(phone, Fix.PROVISION, phone not in told, told.get(phone, _WORDS[Fix.PROVISION])) for phone in phones]


def finish_packages(connection: PhoneConnection) -> None:
    text = PROCESSES + text_of("finish-packages.sh")
    _must(script_anyhow(connection, text, timeout=180.0)[0], "dpkg --configure -a")


def clean(connection: PhoneConnection) -> None:
    _must(connection.run(["apt-get", "clean"], timeout=60.0), "apt-get clean")


def wake_lock(connection: PhoneConnection) -> None:
    text = PROCESSES + 'find_sshd\nset -- "$sshd"\n' + read_script("wake-lock")
    _must(connection.script(text, timeout=40.0), "termux-wake-lock")


def restart_sshd(ward: Ward, connection: PhoneConnection) -> None:
    """Proved by a new login; without one, a plain sshd is started over the session that is still open."""
    _must(script_anyhow(connection, PROCESSES + text_of("restart-sshd.sh"), timeout=20.0)[0], "sshd -t")
    deadline = time.monotonic() + _NEW_LOGIN_S
    while True:
        time.sleep(1.0)
        try:
            return _log_in_afresh(ward, connection.phone)
        except PhoneError as error:
            if time.monotonic() > deadline:
                connection.run([TERMUX_BASH, "-c", 'exec "${BASH%/*}/sshd"'])
                raise PhoneError(
                    f"no new login after sshd was started again: {error.message}", code=error.code
                ) from error


def _log_in_afresh(ward: Ward, phone: Phone) -> None:
    with replace(ward, phones=(phone,)).fleet() as another:
        connection = another.connection(phone)
        connection.run(["true"], check=True)
        with suppress(PhoneError):  # it is a finding of its own
            wake_lock(connection)


def _must(result: CommandResult, what: str) -> None:
    if not result.ok:
        said = last_lines(result.stderr, 2) or last_lines(result.stdout, 2)
        raise PhoneError(
            f"{what}: exit code {result.rc}" + (f": {said}" if said else ""), code=ErrorCode.COMMAND_FAILED
        )
