"""Checks of an SSH session on the phone. Its environment depends on how sshd was started."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

from orchestrator.health import adb_commands
from orchestrator.health.doctor_facts import Symptom
from orchestrator.health.finding import Check, Finding, Fix, note, slows, stops
from orchestrator.health.observation import Observation

SSH_FAILED: Final = 255  # exit code of ssh itself; others are those of the command
_RESTART: Final = "restart sshd with the environment of the Termux app"
_WIRED: Final = (
    "make Ethernet Android's default network: Wi-Fi and mobile data off, a gateway from DHCP, no captive-portal check"
)
_FIX: Final = "clusterctl doctor --fix --limit {phones}"


def environment(observation: Observation) -> Finding | None:
    session = observation.session
    if session is None:
        return None
    if session.shell_error:
        return stops(
            f"{session.shell_error} (PATH is {session.path or 'empty'})", _RESTART, fix=Fix.RESTART_SSHD, command=_FIX
        )
    programs = f"{session.prefix}/bin"
    if not session.prefix or programs not in session.path.split(":"):
        evidence = f"PATH is {session.path or 'empty'}, PREFIX is {session.prefix or 'unset'}"
        return stops(evidence, _RESTART, fix=Fix.RESTART_SSHD, command=_FIX)
    return None


def interpreters(observation: Observation) -> Finding | None:
    session = observation.session
    if session is None or session.preload or environment(observation):
        return None
    probe = observation.probe("shebang")
    if probe is None or probe.rc == 0:
        evidence = "LD_PRELOAD is empty" if probe is None else ""
    else:
        evidence = f"LD_PRELOAD is empty: {probe.output}"
    return slows(evidence, _RESTART, fix=Fix.RESTART_SSHD, command=_FIX) if evidence else None


def temporary_files(observation: Observation) -> Finding | None:
    session = observation.session
    if session is None or session.tmp_writable is not False or environment(observation):
        return None
    evidence = (
        f"TMPDIR is {session.tmpdir}, which is not writable"
        if session.tmpdir
        else "TMPDIR is unset, and there is no /tmp"
    )
    return stops(f"{evidence}: Open MPI has no session directory", _RESTART, fix=Fix.RESTART_SSHD, command=_FIX)


def interfaces(observation: Observation) -> Finding | None:
    session, subnet = observation.session, observation.cluster.subnet
    if session is None or subnet is None or len(session.addresses) < 2:
        return None
    others = [f"{name} {address}" for name, address in session.addresses if name != observation.cluster.interface]
    evidence = f"has {', '.join(others)} in addition to {observation.cluster.interface}"
    if session.wired_only:
        remedy = "none needed: Open MPI uses only the wired network; better remove the SIM and turn Wi-Fi off"
        return note(evidence, remedy, adb=adb_commands.WIRED_ONLY[:2])
    return stops(
        f"{evidence}, and Open MPI is not restricted to the wired network: the first collective would hang",
        f"write the Open MPI parameters for {subnet}",
        fix=Fix.PROVISION,
        command="clusterctl provision --limit {phones}",
    )


def outbound(observation: Observation) -> Finding | None:
    """The routes are known without a neighbor, so a preflight can check them."""
    return _login_to_neighbor(observation) or _routes(observation)


def _routes(observation: Observation) -> Finding | None:
    session, subnet = observation.session, observation.cluster.subnet
    if session is None or subnet is None or not session.outbound:
        return None
    wired = {name for name, address in session.addresses if _is_in(address, subnet)}
    if not wired or session.outbound in wired:
        return None
    route = "have no route" if session.outbound == "none" else f"use {session.outbound}"
    evidence = f"SSH reaches the phone over {', '.join(sorted(wired))}, but connections it opens itself {route}"
    return stops(evidence, _WIRED, adb=adb_commands.WIRED_ONLY)


def _is_in(address: str, subnet: IPv4Network) -> bool:
    try:
        return IPv4Address(address.partition("/")[0]) in subnet
    except ValueError:
        return False


def _login_to_neighbor(observation: Observation) -> Finding | None:
    probe = observation.probe("neighbor")
    if probe is None or observation.neighbor is None or not (probe.timed_out or probe.rc == SSH_FAILED):
        return None  # any other exit code is an answer of the neighbor
    slow = {observation.phone.name, observation.neighbor.name} & observation.cluster.slow
    if slow and (probe.timed_out or Symptom.TIMED_OUT in probe.symptoms):
        return None  # a slow phone explains the timeout, not the network
    if not probe.timed_out and Symptom.UNREACHABLE not in probe.symptoms:
        return None
    evidence = f"cannot connect to {observation.neighbor.name}: {probe.output or 'no answer within 9 s'}"
    return stops(f"{evidence}; from this computer to it works", _WIRED, adb=adb_commands.WIRED_ONLY)


def hard_links(observation: Observation) -> Finding | None:
    probe = observation.probe("link")
    if probe is None or probe.rc == 0:
        return None
    return note(
        f"hard links are refused: {probe.output}",
        "none needed: usual on Android, and clusterctl does not use hard links",
    )


CHECKS: Final = (
    Check("environment", 4, "commands are not found over ssh", environment, in_preflight=True),
    Check("interpreters", 5, "scripts fail with `bad interpreter`", interpreters, in_preflight=True),
    Check("temporary-files", 10, "TMPDIR is unset or not writable", temporary_files, in_preflight=True),
    Check("interfaces", 11, "more than one interface has an address", interfaces, in_preflight=True),
    Check("outbound", 12, "the phone cannot open connections", outbound, in_preflight=True),
    Check("hard-links", None, "hard links are not allowed", hard_links),
)
