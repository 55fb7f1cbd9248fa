"""Checks of the connection: the phase in which it failed shows the cause."""

from __future__ import annotations

from typing import Final

from orchestrator.fleet.result import Phase
from orchestrator.health import adb_commands
from orchestrator.health.checks.session import SSH_FAILED
from orchestrator.health.doctor_facts import Symptom
from orchestrator.health.finding import Check, Finding, Fix, slows, stops
from orchestrator.health.observation import Observation
from phone_agent.contract.errors import ErrorCode

_PENALTIES_SINCE: Final = (9, 8)
_POWER_CUT: Final = 3  # at least this many phones of a switch refuse connections, and at least half of them
_BOOT_TIMEOUT_S: Final = 600  # Termux:Boot may take minutes
_PROVISION: Final = "clusterctl provision --limit {phones}"


def penalties(observation: Observation) -> Finding | None:
    if observation.contact.code in {ErrorCode.SSH_PENALTY, ErrorCode.CONNECTION_CLOSED}:
        return stops(
            observation.contact.error,
            "do not connect to the phone for ten minutes, or restart sshd on it; then provision to exempt this network",
            adb=(*adb_commands.TO_FRONT, 'shell input text "pkill%ssshd;%ssshd"', "shell input keyevent ENTER"),
            command=_PROVISION,
        )
    facts, subnet = observation.facts, observation.cluster.subnet
    if facts is None or subnet is None or facts.ssh_version is None or facts.ssh_version < _PENALTIES_SINCE:
        return None
    if facts.penalty_exempt is not None and str(subnet) in facts.penalty_exempt:
        return None
    version = ".".join(map(str, facts.ssh_version))
    exempt = facts.penalty_exempt or "empty"
    evidence = f"OpenSSH {version} penalizes frequent connections; its PerSourcePenaltyExemptList is {exempt}"
    return slows(evidence, f"exempt {subnet} in the sshd settings", fix=Fix.PROVISION, command=_PROVISION)


def sshd_not_running(observation: Observation) -> Finding | None:
    if observation.contact.code is not ErrorCode.CONNECTION_REFUSED or _restart_evidence(observation):
        return None
    return stops(
        f"{observation.contact.error} at {observation.phone.address}: the phone is up, but sshd is not running",
        "on the phone, in Termux: termux-wake-lock; sshd. "
        "After provisioning, sshd starts at boot and restarts if it exits",
        adb=adb_commands.START_SSHD,
        command=_PROVISION,
    )


def not_started_at_boot(observation: Observation) -> Finding | None:
    remedy = "open Termux and Termux:Boot on the phone, remove the screen lock, exempt both from battery optimization"
    if observation.contact.code is ErrorCode.CONNECTION_REFUSED and (reason := _restart_evidence(observation)):
        return stops(
            f"{observation.contact.error}; {reason}", remedy, adb=(*adb_commands.OPEN_BOOT, *adb_commands.STAY_AWAKE)
        )
    facts = observation.facts
    if facts is None or not facts.agent_installed:
        return None
    if facts.boot_script == "missing":
        return slows(
            "no boot script in ~/.termux/boot: sshd does not start after a restart",
            "install the boot script",
            fix=Fix.PROVISION,
            command=_PROVISION,
        )
    late = (facts.uptime_s or 0) > _BOOT_TIMEOUT_S
    if facts.boot_script == "before-boot" and facts.sshd_supervisor == "none" and late:
        minutes = (facts.uptime_s or 0) // 60
        evidence = f"the phone started {minutes} min ago, but Termux:Boot did not run ~/.termux/boot/00-clusterctl"
        return slows(evidence, remedy, adb=(*adb_commands.OPEN_BOOT, *adb_commands.STAY_AWAKE))
    return None


def _restart_evidence(observation: Observation) -> str:
    """Evidence that sshd is missing because the phone restarted; empty if there is none."""
    switch = observation.phone.switch
    refusing, size = observation.cluster.refusing.get(switch, 0), observation.cluster.sizes.get(switch, 0)
    if refusing >= _POWER_CUT and 2 * refusing >= size:
        return f"so do {refusing} of {size} phones on {switch}: they restarted, but Termux:Boot did not start sshd"
    if observation.previous and observation.previous.sshd_supervisor in {"boot", "runit"}:
        return "sshd was set to restart at the last examination: the phone restarted, but Termux:Boot did not run"
    return ""


def ethernet(observation: Observation) -> Finding | None:
    cable = (
        f"check power and cable at {observation.phone.where}; use an RTL8153 or AX88179 adapter: others appear as usb0 "
        "without an address"
    )
    if observation.contact.code in {ErrorCode.NO_ANSWER, ErrorCode.NO_ROUTE} and not observation.contact.found_at:
        where = f"{observation.phone.address}, and its host key was found at no other address nearby"
        return stops(f"{observation.contact.error} at {where}", cable, adb=adb_commands.SHOW_INTERFACES)
    session, wired = observation.session, observation.cluster.interface
    if session is None or observation.cluster.subnet is None or not session.addresses:
        return None
    used = next(
        (name for name, at in session.addresses if at.partition("/")[0] == str(observation.phone.address)), None
    )
    if used in {wired, None}:
        return None
    state = "has another address" if wired in session.interfaces else "is missing"
    return stops(f"reached over {used}; {wired} {state}", cable, adb=adb_commands.SHOW_INTERFACES)


def moved(observation: Observation) -> Finding | None:
    remedy = "reserve its address for the MAC of its adapter in the DHCP server, or correct the inventory"
    if observation.contact.found_at:
        evidence = (
            f"does not answer at {observation.phone.address}; its host key answers at {observation.contact.found_at}"
        )
        return stops(evidence, remedy)
    if (
        observation.contact.presented_key
        and observation.contact.same_key
        and not observation.contact.same_key_reachable
    ):
        return stops(f"{', '.join(observation.contact.same_key)} answers at {observation.phone.address}", remedy)
    return None


def host_key(observation: Observation) -> Finding | None:
    contact = observation.contact
    if contact.phase is not Phase.HOSTKEY or moved(observation) or contact.code is ErrorCode.HOST_KEY_UNKNOWN:
        return None
    if contact.same_key or contact.code is ErrorCode.HOST_KEY_DUPLICATE:
        return stops(
            contact.error + (f"; {', '.join(contact.same_key)} has the same host key" if contact.same_key else ""),
            "on this phone, in Termux: rm $PREFIX/etc/ssh/ssh_host_*; ssh-keygen -A; pkill sshd; sshd",
            command="clusterctl hosts forget {phones}",
        )
    return stops(
        contact.error,
        "if you reinstalled Termux there, forget the old key; if not, find the device that answers at its address",
        command="clusterctl hosts forget {phones}",
    )


def login(observation: Observation) -> Finding | None:
    contact = observation.contact
    if contact.code is ErrorCode.HOST_KEY_UNKNOWN:
        return stops(contact.error, "provision the phone", fix=Fix.PROVISION, command=_PROVISION)
    if contact.phase in {Phase.AUTH, Phase.KEX}:
        return stops(contact.error, contact.remedy or "clusterctl hosts key", command="clusterctl hosts key")
    if contact.phase in {Phase.EXEC, Phase.COPY, Phase.CANCELLED} or contact.code is ErrorCode.NOT_SSH:
        return stops(contact.error, contact.remedy or "open Termux on the phone and check that its shell starts")
    return None


def phone_keys(observation: Observation) -> Finding | None:
    """Phones log in to each other at the start of a run."""
    probe = observation.probe("neighbor")
    if probe is None or probe.rc != SSH_FAILED or observation.neighbor is None:
        return None
    if Symptom.LOGIN_DENIED in probe.symptoms:
        evidence = f"cannot log in to {observation.neighbor.name}: {probe.output}"
        return stops(
            evidence, "install the phone keys on all phones", fix=Fix.PROVISION, command="clusterctl provision"
        )
    return None


CHECKS: Final = (
    Check("penalties", 1, "sshd penalizes connections that do not log in", penalties),
    Check("sshd", 2, "connection refused on port 8022", sshd_not_running),
    Check("boot", 3, "sshd does not start after a restart of the phone", not_started_at_boot),
    Check(
        "ethernet", 13, "no answer on the wired network, or reached over another interface", ethernet, in_preflight=True
    ),
    Check("address", 14, "the phone has another address than in the inventory", moved),
    Check("host-key", 15, "host key changed, or shared by two phones", host_key),
    Check("login", None, "login is refused, or the phone is not provisioned", login),
    Check("phone-keys", None, "phones cannot log in to each other", phone_keys),
)
