"""Checks of the device: killed processes, available cores, heat, sleep, power, clock, storage and memory."""

from __future__ import annotations

from typing import Final

from orchestrator.health import adb_commands
from orchestrator.health.doctor_facts import DoctorFacts
from orchestrator.health.finding import Check, Finding, Fix, note, slows, stops
from orchestrator.health.observation import Observation
from orchestrator.health.phone_health import (
    LOW_BATTERY_PERCENT,
    MAX_CLOCK_OFFSET_S,
    MIN_FREE_DISK_MB,
    MIN_FREE_MEMORY_MB,
)
from phone_agent.contract.errors import ErrorCode

_ANDROID_12: Final = 31
_MAX_PROCESSES: Final = 32
_THROTTLED_RATIO: Final = 0.7
_SLEEP_LIMIT_S: Final = 1.3
_CLOCK_LIMIT_S: Final = 2.0
_DISCHARGE_MIN_S: Final = 120.0
_DISCHARGE_MAX_S: Final = 86400.0
_COOL: Final = "cool the phone (fan, no case) or use fewer threads; load balancing gives it smaller batches meanwhile"


def phantom_killer(observation: Observation) -> Finding | None:
    facts = observation.facts
    run = observation.cluster.killed.get(observation.phone.name)
    if facts is None or (facts.sdk is not None and facts.sdk < _ANDROID_12):
        return None
    remedy = "turn off Android 12's process limit"
    if facts.phantom_kill:
        return stops(f"Android killed processes: {facts.phantom_kill}", remedy, adb=adb_commands.NO_PHANTOM_KILLER)
    if run:
        return stops(
            f"its rank was killed (signal 9) in {run}: too many processes, or too little memory",
            remedy,
            adb=adb_commands.NO_PHANTOM_KILLER,
        )
    if facts.processes is not None and facts.processes > _MAX_PROCESSES:
        evidence = f"{facts.processes} Termux processes: Android 12 kills those beyond {_MAX_PROCESSES}"
        return slows(evidence, remedy, adb=adb_commands.NO_PHANTOM_KILLER)
    return None


def little_cores(observation: Observation) -> Finding | None:
    session = observation.session
    if session is None:
        return None
    big, allowed = set(session.big_cores), set(session.cpus_allowed)
    demoted = bool(big and allowed and not big & allowed)
    if not demoted and "background" not in session.cpuset:
        return None
    group = f", cpuset {session.cpuset}" if session.cpuset.strip("/") else ""
    big_cores = _cores(tuple(sorted(big))) or "?"
    evidence = f"may use only cores {_cores(session.cpus_allowed)}; the big cores are {big_cores}{group}"
    remedy = "bring Termux to the foreground, then restart sshd, which inherits Termux's cores"
    return slows(evidence, remedy, adb=adb_commands.TO_FRONT, command="clusterctl doctor --limit {phones}")


def _cores(cores: tuple[int, ...]) -> str:
    """`0-2,4`"""
    parts: list[list[int]] = []
    for core in cores:
        if parts and parts[-1][-1] == core - 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def throttled(observation: Observation) -> Finding | None:
    found = observation.facts.frequency_mhz if observation.facts else None
    if found is None or found[0] >= _THROTTLED_RATIO * found[1]:
        return None
    return slows(f"{found[0]} of {found[1]} MHz under load", _COOL, command="clusterctl status")


def is_slow(facts: DoctorFacts) -> bool:
    """The phone dozes, is throttled, or did not finish the examination."""
    current, maximum = facts.frequency_mhz or (1, 1)
    return not facts.complete or (facts.slept_s or 0.0) > _SLEEP_LIMIT_S or current < _THROTTLED_RATIO * maximum


def dozing(observation: Observation) -> Finding | None:
    remedy = "keep the phone awake: wake lock, exemption from battery optimization, and a charger"
    awake, fix_command = adb_commands.STAY_AWAKE, "clusterctl doctor --fix --limit {phones}"
    if observation.contact.code is ErrorCode.NO_BANNER:
        return stops(observation.contact.error, remedy, adb=(*adb_commands.TO_FRONT, *awake))
    facts = observation.facts
    if facts is None:
        return None
    if facts.slept_s is not None and facts.slept_s > _SLEEP_LIMIT_S:
        return slows(f"`sleep 1` took {facts.slept_s:.1f} s", remedy, adb=awake)
    if not facts.complete:
        return slows("the examination did not finish in 25 s", remedy, adb=awake)
    if facts.wake_lock == "free" and facts.agent_installed:
        return note("Termux holds no wake lock", "acquire it", fix=Fix.WAKE_LOCK, command=fix_command)
    return None


def battery_status_hangs(observation: Observation) -> Finding | None:
    probe = observation.probe("battery")
    if probe is None or not probe.timed_out:
        return None
    return note(
        "termux-battery-status did not answer in 8 s",
        "install the Termux:API app from the same source as Termux, open it once, exempt it from battery optimization",
        adb=(*adb_commands.OPEN_API, adb_commands.STAY_AWAKE[1]),
    )


def no_temperature(observation: Observation) -> Finding | None:
    if observation.facts is None or observation.facts.thermal != "denied":
        return None
    battery = observation.facts.battery
    has_other = battery is not None and battery.temperature_c is not None
    other = "using the battery temperature" if has_other else "no other temperature known"
    evidence = f"cannot read any zone of /sys/class/thermal; {other}"
    return note(evidence, "allow Termux to read Android's thermal service", adb=adb_commands.READ_HEAT)


def power(observation: Observation) -> Finding | None:
    battery = observation.facts.battery if observation.facts else None
    if battery is None or battery.plugged is None or battery.percent is None:
        return None
    finding = stops if battery.percent < LOW_BATTERY_PERCENT else slows
    if not battery.plugged:
        where = observation.phone.where
        return finding(f"battery {battery.percent}% and not charging", f"check the power supply at {where}")
    discharge = _discharge(observation, battery.percent)
    if battery.status != "DISCHARGING" and not discharge:
        return None
    evidence = f"battery {battery.percent}%, {battery.power_source} but {battery.status}{discharge}"
    return finding(evidence, "use a hub or adapter that supplies more power (USB PD); reduce the load until then")


def _discharge(observation: Observation, percent: int) -> str:
    """`, 3 % less than 10 min ago`, if it was plugged in then as well."""
    previous = observation.previous
    if previous is None or not previous.plugged or previous.percentage is None:
        return ""
    ago, less = observation.cluster.now - previous.when, previous.percentage - percent
    if not _DISCHARGE_MIN_S <= ago <= _DISCHARGE_MAX_S or less < 1:
        return ""
    return f", {less:.0f} % less than {ago / 60:.0f} min ago"


def clock(observation: Observation) -> Finding | None:
    ahead = observation.facts.clock_ahead_s if observation.facts else 0.0
    if abs(ahead) <= _CLOCK_LIMIT_S:
        return None
    evidence = f"clock is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
    finding = stops if abs(ahead) > MAX_CLOCK_OFFSET_S else note
    return finding(
        evidence,
        "set an NTP server that the phone can reach, or set the clock by hand",
        adb=adb_commands.set_clock(observation.cluster.host),
    )


def disk(observation: Observation) -> Finding | None:
    free = observation.facts.disk_mb if observation.facts else None
    if free is None or free >= MIN_FREE_DISK_MB:
        return None
    evidence = f"{free} MB of storage free, {MIN_FREE_DISK_MB} MB needed"
    remedy = "apt-get clean; then free space on the phone (Settings, Device care, Storage)"
    return stops(evidence, remedy, fix=Fix.CLEAN, command="clusterctl doctor --fix --limit {phones}")


def memory(observation: Observation) -> Finding | None:
    free = observation.facts.memory_mb if observation.facts else None
    if free is None or free >= MIN_FREE_MEMORY_MB:
        return None
    return stops(f"{free} MB of memory free, {MIN_FREE_MEMORY_MB} MB needed", "close other apps, or restart the phone")


CHECKS: Final = (
    Check("phantom-killer", 16, "Android 12 kills processes beyond 32", phantom_killer),
    Check("little-cores", 17, "Termux may use only the little cores", little_cores, in_preflight=True),
    Check("throttled", 18, "the CPU is throttled by heat", throttled),
    Check("sleepy", 19, "the phone dozes", dozing),
    Check("battery-silent", 20, "termux-battery-status hangs", battery_status_hangs),
    Check("no-temperature", 21, "no temperature can be read", no_temperature),
    Check("power", 22, "the battery discharges", power),
    Check("clock", 25, "the clock is wrong", clock),
    Check("disk", None, "too little free storage", disk),
    Check("memory", None, "too little free memory", memory),
)
