"""Phones that were not reached: how far it got tells why."""

from __future__ import annotations

from typing import Final

from orchestrator.fleet.result import Phase
from orchestrator.health import adb_commands as adb
from orchestrator.health.checks.session import SSH_FAILED
from orchestrator.health.doctor_facts import Symptom
from orchestrator.health.finding import Check, Finding, Fix, slows, stops
from orchestrator.health.observation import Seen
from phone_agent.contract.errors import ErrorCode

_PENALTIES_SINCE: Final = (9, 8)
_POWER_CUT: Final = 3  # so many phones of a switch refuse at once, and no fewer than half of them
_BOOT_PATIENCE_S: Final = 600  # Termux:Boot may take minutes
_SET_UP: Final = "clusterctl provision --limit {phones}"


def penalties(seen: Seen) -> Finding | None:
    """Row 1."""
    if seen.contact.code in {ErrorCode.SSH_PENALTY, ErrorCode.CONNECTION_CLOSED}:
        return stops(
            seen.contact.error,
            "wait ten minutes without connecting to it, or restart sshd there; then provision exempts this network",
            adb=(*adb.TO_FRONT, 'shell input text "pkill%ssshd;%ssshd"', "shell input keyevent ENTER"),
            command=_SET_UP,
        )
    facts, subnet = seen.facts, seen.common.subnet
    if facts is None or subnet is None or facts.ssh_version is None or facts.ssh_version < _PENALTIES_SINCE:
        return None
    if facts.exempt is not None and str(subnet) in facts.exempt:
        return None
    version = ".".join(map(str, facts.ssh_version))
    told = (
        f"OpenSSH {version} punishes many connections, and its PerSourcePenaltyExemptList is {facts.exempt or 'empty'}"
    )
    return slows(told, f"exempt {subnet} in sshd's settings", fix=Fix.PROVISION, command=_SET_UP)


def sshd_gone(seen: Seen) -> Finding | None:
    """Row 2."""
    if seen.contact.code is not ErrorCode.CONNECTION_REFUSED or _restarted(seen):
        return None
    return stops(
        f"{seen.contact.error} at {seen.phone.address}: the phone answers, sshd is gone",
        "on the phone, in Termux: termux-wake-lock; sshd. Provisioning then starts it at boot and again when it ends",
        adb=adb.START_SSHD,
        command=_SET_UP,
    )


def not_back_after_restart(seen: Seen) -> Finding | None:
    """Row 3."""
    remedy = "open Termux and Termux:Boot on the phone once; no screen lock; exempt both from battery optimisation"
    if seen.contact.code is ErrorCode.CONNECTION_REFUSED and (why := _restarted(seen)):
        return stops(f"{seen.contact.error}; {why}", remedy, adb=(*adb.OPEN_BOOT, *adb.STAY_AWAKE))
    facts = seen.facts
    if facts is None or not facts.agent_installed:
        return None
    if facts.boot_script == "missing":
        return slows(
            "no boot script in ~/.termux/boot: sshd does not come back after a restart",
            "write the boot script",
            fix=Fix.PROVISION,
            command=_SET_UP,
        )
    late = (facts.uptime_s or 0) > _BOOT_PATIENCE_S
    if facts.boot_script == "before-boot" and facts.keeper == "none" and late:
        minutes = (facts.uptime_s or 0) // 60
        told = f"it started {minutes} min ago, and Termux:Boot did not run ~/.termux/boot/00-clusterctl"
        return slows(told, remedy, adb=(*adb.OPEN_BOOT, *adb.STAY_AWAKE))
    return None


def _restarted(seen: Seen) -> str:
    """Why a missing sshd means that the phone restarted without it; empty where nothing says so."""
    switch = seen.phone.switch
    refusing, size = seen.common.refusing.get(switch, 0), seen.common.sizes.get(switch, 0)
    if refusing >= _POWER_CUT and 2 * refusing >= size:
        return f"so do {refusing} of {size} phones on {switch}: they restarted, and Termux:Boot did not start sshd"
    if seen.earlier and seen.earlier.keeper in {"boot", "runit"}:
        return (
            "when last examined, sshd would have been started again: the phone restarted, and Termux:Boot did not run"
        )
    return ""


def ethernet(seen: Seen) -> Finding | None:
    """Row 13."""
    cable = (
        f"check power and cable at {seen.phone.where}; the adapter must be an RTL8153 or AX88179: others come up as "
        "usb0, without an address"
    )
    if seen.contact.code in {ErrorCode.NO_ANSWER, ErrorCode.NO_ROUTE} and not seen.contact.elsewhere:
        told = f"{seen.contact.error} at {seen.phone.address}, and its host key is at no other address nearby"
        return stops(told, cable, adb=adb.SHOW_INTERFACES)
    session, wired = seen.session, seen.common.interface
    if session is None or seen.common.subnet is None or not session.addresses:
        return None
    used = next((name for name, at in session.addresses if at.partition("/")[0] == str(seen.phone.address)), None)
    if used in {wired, None}:
        return None
    there = "is there without that address" if wired in session.interfaces else "is absent"
    return stops(f"it was reached over {used}; {wired} {there}", cable, adb=adb.SHOW_INTERFACES)


def moved(seen: Seen) -> Finding | None:
    """Row 14."""
    remedy = "reserve its address for the adapter's MAC in the DHCP server, or correct the inventory"
    if seen.contact.elsewhere:
        told = f"does not answer at {seen.phone.address}; its host key answers at {seen.contact.elsewhere}"
        return stops(told, remedy)
    if seen.contact.shown and seen.contact.like and not seen.contact.like_there:
        return stops(f"at {seen.phone.address} answers {', '.join(seen.contact.like)}", remedy)
    return None


def host_key(seen: Seen) -> Finding | None:
    """Row 15."""
    contact = seen.contact
    if contact.phase is not Phase.HOSTKEY or moved(seen) or contact.code is ErrorCode.HOST_KEY_UNKNOWN:
        return None
    if contact.like or contact.code is ErrorCode.HOST_KEY_DUPLICATE:
        return stops(
            contact.error + (f"; {', '.join(contact.like)} shows the same key" if contact.like else ""),
            "on this phone, in Termux: rm $PREFIX/etc/ssh/ssh_host_*; ssh-keygen -A; pkill sshd; sshd",
            command="clusterctl hosts forget {phones}",
        )
    return stops(
        contact.error,
        "if you set the phone up again yourself, forget its old key; if not, find what answers at its address",
        command="clusterctl hosts forget {phones}",
    )


def login(seen: Seen) -> Finding | None:
    contact = seen.contact
    if contact.code is ErrorCode.HOST_KEY_UNKNOWN:
        return stops(contact.error, "set it up", fix=Fix.PROVISION, command=_SET_UP)
    if contact.phase in {Phase.AUTH, Phase.KEX}:
        return stops(contact.error, contact.remedy or "clusterctl hosts key", command="clusterctl hosts key")
    if contact.phase in {Phase.EXEC, Phase.COPY, Phase.CANCELLED} or contact.code is ErrorCode.NOT_SSH:
        return stops(contact.error, contact.remedy or "open Termux on the phone: does its shell start?")
    return None


def neighbours(seen: Seen) -> Finding | None:
    """Phones log in to each other when a run starts."""
    ran = seen.facts.ran.get("neighbour") if seen.facts else None
    if ran is None or ran.rc != SSH_FAILED or seen.neighbour is None:
        return None
    if Symptom.LOGIN_DENIED in ran.symptoms:
        told = f"may not log in to {seen.neighbour.name}: {ran.said}"
        return stops(told, "give the phones each other's keys", fix=Fix.PROVISION, command="clusterctl provision")
    return None


CHECKS: Final = (
    Check("penalties", 1, "sshd punishes connections that do not log in", penalties),
    Check("sshd", 2, "connection refused on port 8022", sshd_gone),
    Check("boot", 3, "sshd does not come back after a restart", not_back_after_restart),
    Check("ethernet", 13, "no answer on the wire, or another interface than the wired one", ethernet, before_runs=True),
    Check("address", 14, "the phone answers at another address than the inventory says", moved),
    Check("host-key", 15, "another host key than the pinned one, or one that two phones share", host_key),
    Check("login", None, "the phone does not let this computer in, or is not set up", login),
    Check("phone-keys", None, "phones cannot log in to each other", neighbours),
)
