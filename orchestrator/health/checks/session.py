"""What a session on the phone is like: the way sshd was started decides it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

from orchestrator.health import adb_commands as adb
from orchestrator.health.doctor_facts import Symptom
from orchestrator.health.finding import Check, Finding, Fix, note, slows, stops
from orchestrator.health.observation import Seen

SSH_FAILED: Final = 255  # ssh's own exit code; others are the command's
_RESTART: Final = "start sshd again with the environment the Termux app gives"
_WIRED: Final = (
    "Wi-Fi and mobile data off, a gateway from DHCP, no captive-portal check: Ethernet must be Android's network"
)
_DO_IT: Final = "clusterctl doctor --fix --limit {phones}"


def environment(seen: Seen) -> Finding | None:
    """Row 4."""
    session = seen.session
    if session is None:
        return None
    if session.shell_error:
        return stops(
            f"{session.shell_error} (PATH is {session.path or 'empty'})", _RESTART, fix=Fix.RESTART_SSHD, command=_DO_IT
        )
    home = f"{session.prefix}/bin"
    if not session.prefix or home not in session.path.split(":"):
        told = f"PATH is {session.path or 'empty'}, PREFIX is {session.prefix or 'unset'}"
        return stops(told, _RESTART, fix=Fix.RESTART_SSHD, command=_DO_IT)
    return None


def interpreters(seen: Seen) -> Finding | None:
    """Row 5."""
    session = seen.session
    if session is None or session.preload or environment(seen):
        return None
    ran = seen.facts.ran.get("shebang") if seen.facts else None
    if ran is None or ran.rc == 0:
        said = "LD_PRELOAD is empty" if ran is None else ""
    else:
        said = f"LD_PRELOAD is empty: {ran.said}"
    return slows(said, _RESTART, fix=Fix.RESTART_SSHD, command=_DO_IT) if said else None


def temporary_files(seen: Seen) -> Finding | None:
    """Row 10."""
    session = seen.session
    if session is None or session.tmp_writable is not False or environment(seen):
        return None
    told = (
        f"TMPDIR is {session.tmpdir}, which cannot be written"
        if session.tmpdir
        else "TMPDIR is unset, and there is no /tmp"
    )
    return stops(f"{told}: Open MPI has no place for its session", _RESTART, fix=Fix.RESTART_SSHD, command=_DO_IT)


def interfaces(seen: Seen) -> Finding | None:
    """Row 11."""
    session, subnet = seen.session, seen.common.subnet
    if session is None or subnet is None or len(session.addresses) < 2:
        return None
    others = [f"{name} {address}" for name, address in session.addresses if name != seen.common.interface]
    told = f"has {', '.join(others)} beside {seen.common.interface}"
    if session.wired_only:
        remedy = "nothing has to be done: Open MPI is told the wired network; better without SIM, Wi-Fi off"
        return note(told, remedy, adb=adb.WIRED_ONLY[:2])
    return stops(
        f"{told}, and Open MPI's settings do not name the wired network: the first collective would hang",
        f"write Open MPI's settings for {subnet}",
        fix=Fix.PROVISION,
        command="clusterctl provision --limit {phones}",
    )


def outbound(seen: Seen) -> Finding | None:
    """Row 12. What its routes say needs no neighbour: so it can be asked before every run."""
    return _tried(seen) or _by_its_routes(seen)


def _by_its_routes(seen: Seen) -> Finding | None:
    session, subnet = seen.session, seen.common.subnet
    if session is None or subnet is None or not session.outbound:
        return None
    wired = {name for name, address in session.addresses if _is_in(address, subnet)}
    if not wired or session.outbound in wired:
        return None
    way = "has no route" if session.outbound == "none" else f"goes out by {session.outbound}"
    return stops(
        f"ssh comes in by {', '.join(sorted(wired))}, and what it begins itself {way}", _WIRED, adb=adb.WIRED_ONLY
    )


def _is_in(address: str, subnet: IPv4Network) -> bool:
    try:
        return IPv4Address(address.partition("/")[0]) in subnet
    except ValueError:
        return False


def _tried(seen: Seen) -> Finding | None:
    """By a login to the next phone."""
    ran = seen.facts.ran.get("neighbour") if seen.facts else None
    if ran is None or seen.neighbour is None or not (ran.timed_out or ran.rc == SSH_FAILED):
        return None  # an answer from there, whatever it says, came back
    late = {seen.phone.name, seen.neighbour.name} & seen.common.slow
    if late and (ran.timed_out or Symptom.TIMED_OUT in ran.symptoms):
        return None  # neither of the two may be blamed for its network
    if not ran.timed_out and Symptom.UNREACHABLE not in ran.symptoms:
        return None
    told = f"cannot open a connection to {seen.neighbour.name}: {ran.said or 'no answer within 9 s'}"
    return stops(f"{told}; from here to it works", _WIRED, adb=adb.WIRED_ONLY)


def hard_links(seen: Seen) -> Finding | None:
    ran = seen.facts.ran.get("link") if seen.facts else None
    if ran is None or ran.rc == 0:
        return None
    return note(
        f"hard links are refused: {ran.said}",
        "nothing: usual on Android; all that is installed here is renamed into place",
    )


CHECKS: Final = (
    Check("environment", 4, "commands are not found over ssh", environment, before_runs=True),
    Check("interpreters", 5, "scripts say `bad interpreter`", interpreters, before_runs=True),
    Check("temporary-files", 10, "TMPDIR is unset or cannot be written", temporary_files, before_runs=True),
    Check("interfaces", 11, "more than one interface has an address", interfaces, before_runs=True),
    Check("outbound", 12, "ssh comes in, and nothing goes out", outbound, before_runs=True),
    Check("hard-links", None, "files cannot have two names", hard_links),
)
