"""The phone as a thing: processes Android kills, cores it withholds, heat, sleep, power, time, room."""

from __future__ import annotations

from typing import Final

from orchestrator.health import adb_commands as adb
from orchestrator.health.doctor_facts import Facts
from orchestrator.health.finding import Check, Finding, Fix, note, slows, stops
from orchestrator.health.observation import Seen
from orchestrator.health.phone_health import CLOCK_OFF_S, LITTLE_DISK_MB, LITTLE_MEMORY_MB, LOW_BATTERY_PERCENT
from phone_agent.contract.errors import ErrorCode

_ANDROID_12: Final = 31
_MOST_PROCESSES: Final = 32
_FULL_SPEED: Final = 0.7
_SLEEP_LIMIT_S: Final = 1.3
_CLOCK_LIMIT_S: Final = 2.0
_SLOPE_AFTER_S: Final = 120.0
_SLOPE_WITHIN_S: Final = 86400.0
_COOL: Final = "cool it (fan, no case), fewer threads; a run gives it less to do by itself"


def phantom_killer(seen: Seen) -> Finding | None:
    """Row 16."""
    facts = seen.facts
    run = seen.common.killed.get(seen.phone.name)
    if facts is None or (facts.sdk is not None and facts.sdk < _ANDROID_12):
        return None
    remedy = "tell Android 12 not to count Termux's processes"
    if facts.phantom:
        return stops(f"Android killed processes: {facts.phantom}", remedy, adb=adb.NO_PHANTOM_KILLER)
    if run:
        return stops(
            f"its rank was killed (signal 9) in {run}: too many processes, or memory", remedy, adb=adb.NO_PHANTOM_KILLER
        )
    if facts.processes is not None and facts.processes > _MOST_PROCESSES:
        told = f"{facts.processes} processes of Termux: Android 12 kills what is beyond {_MOST_PROCESSES}"
        return slows(told, remedy, adb=adb.NO_PHANTOM_KILLER)
    return None


def little_cores(seen: Seen) -> Finding | None:
    """Row 17."""
    session = seen.session
    if session is None:
        return None
    big, allowed = set(session.big_cores), set(session.cpus_allowed)
    demoted = bool(big and allowed and not big & allowed)
    if not demoted and "background" not in session.cpuset:
        return None
    group = f", cpuset {session.cpuset}" if session.cpuset.strip("/") else ""
    told = f"may use cores {_cores(session.cpus_allowed)} only, big ones are {_cores(tuple(sorted(big))) or '?'}{group}"
    remedy = "bring Termux to the front, then start sshd again: what it starts inherits its cores"
    return slows(told, remedy, adb=adb.TO_FRONT, command="clusterctl doctor --limit {phones}")


def _cores(cores: tuple[int, ...]) -> str:
    """`0-2,4`"""
    parts: list[list[int]] = []
    for core in cores:
        if parts and parts[-1][-1] == core - 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def throttled(seen: Seen) -> Finding | None:
    """Row 18."""
    found = seen.facts.frequency_mhz if seen.facts else None
    if found is None or found[0] >= _FULL_SPEED * found[1]:
        return None
    return slows(f"{found[0]} of {found[1]} MHz under load", _COOL, command="clusterctl status")


def is_late(facts: Facts) -> bool:
    """What it is asked takes long for its own reasons: it sleeps, it is throttled, or it did not come to the end."""
    now, most = facts.frequency_mhz or (1, 1)
    return not facts.complete or (facts.slept_s or 0.0) > _SLEEP_LIMIT_S or now < _FULL_SPEED * most


def sleepy(seen: Seen) -> Finding | None:
    """Row 19."""
    remedy = "wake lock, exemption from battery optimisation, and power: a phone without it dozes"
    awake, do_it = adb.STAY_AWAKE, "clusterctl doctor --fix --limit {phones}"
    if seen.contact.code is ErrorCode.NO_BANNER:
        return stops(seen.contact.error, remedy, adb=(*adb.TO_FRONT, *awake))
    facts = seen.facts
    if facts is None:
        return None
    if facts.slept_s is not None and facts.slept_s > _SLEEP_LIMIT_S:
        return slows(f"a second of sleep took {facts.slept_s:.1f} s", remedy, adb=awake)
    if not facts.complete:
        return slows("it did not answer all questions in 25 s", remedy, adb=awake)
    if facts.wake_lock == "free" and facts.agent_installed:
        return note("Termux holds no wake lock", "take it", fix=Fix.WAKE_LOCK, command=do_it)
    return None


def battery_silent(seen: Seen) -> Finding | None:
    """Row 20."""
    ran = seen.facts.ran.get("battery") if seen.facts else None
    if ran is None or not ran.timed_out:
        return None
    return note(
        "termux-battery-status did not answer in 8 s",
        "install the Termux:API app from Termux's own source, open it once, exempt it from battery optimisation",
        adb=(*adb.OPEN_API, adb.STAY_AWAKE[1]),
    )


def no_temperature(seen: Seen) -> Finding | None:
    """Row 21."""
    if seen.facts is None or seen.facts.thermal != "denied":
        return None
    other = "the battery's is used" if "temperature" in seen.facts.battery else "none is known"
    told = f"no zone of /sys/class/thermal can be read; {other}"
    return note(told, "let Termux ask Android's thermal service", adb=adb.READ_HEAT)


def power(seen: Seen) -> Finding | None:
    """Row 22."""
    battery = seen.facts.battery if seen.facts else {}
    plugged, status, percent = battery.get("plugged"), battery.get("status"), battery.get("percentage")
    if not isinstance(plugged, str) or not isinstance(percent, int | float):
        return None
    remedy = "a hub or adapter that passes enough power (PD); less load until then"
    if plugged == "UNPLUGGED":
        low = percent < LOW_BATTERY_PERCENT
        return (stops if low else slows)(
            f"battery {percent:.0f} % and nothing charges it", f"power at {seen.phone.where}"
        )
    lost = _lost(seen, float(percent))
    if status != "DISCHARGING" and not lost:
        return None
    finding = stops if percent < LOW_BATTERY_PERCENT else slows
    return finding(f"battery {percent:.0f} %, {plugged} and yet {status}{lost}", remedy)


def _lost(seen: Seen, percent: float) -> str:
    """`, 3 % less than 10 min ago`, where it was plugged in then as well."""
    before = seen.earlier
    if before is None or not before.plugged or before.percentage is None:
        return ""
    ago, less = seen.common.now - before.when, before.percentage - percent
    if not _SLOPE_AFTER_S <= ago <= _SLOPE_WITHIN_S or less < 1:
        return ""
    return f", {less:.0f} % less than {ago / 60:.0f} min ago"


def clock(seen: Seen) -> Finding | None:
    """Row 25."""
    ahead = seen.facts.clock_ahead_s if seen.facts else 0.0
    if abs(ahead) <= _CLOCK_LIMIT_S:
        return None
    told = f"its clock is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
    finding = stops if abs(ahead) > CLOCK_OFF_S else note
    return finding(
        told, "automatic time from a server the phone can reach, or set it by hand", adb=adb.set_clock(seen.common.host)
    )


def disk(seen: Seen) -> Finding | None:
    free = seen.facts.disk_mb if seen.facts else None
    if free is None or free >= LITTLE_DISK_MB:
        return None
    told = f"{free} MB of storage are free, {LITTLE_DISK_MB} MB are needed"
    remedy = "apt-get clean; then free space on the phone (Settings, Device care, Storage)"
    return stops(told, remedy, fix=Fix.CLEAN, command="clusterctl doctor --fix --limit {phones}")


def memory(seen: Seen) -> Finding | None:
    free = seen.facts.memory_mb if seen.facts else None
    if free is None or free >= LITTLE_MEMORY_MB:
        return None
    return stops(
        f"{free} MB of memory are free, {LITTLE_MEMORY_MB} MB are needed", "close other apps, or restart the phone"
    )


CHECKS: Final = (
    Check("phantom-killer", 16, "Android 12 kills processes beyond 32", phantom_killer),
    Check("little-cores", 17, "only the little cores may be used", little_cores, before_runs=True),
    Check("throttled", 18, "the processor is slowed down by heat", throttled),
    Check("sleepy", 19, "sleeps stretch, or the phone dozes", sleepy),
    Check("battery-silent", 20, "the battery call hangs", battery_silent),
    Check("no-temperature", 21, "no temperature can be read", no_temperature),
    Check("power", 22, "discharging, plugged in or not", power),
    Check("clock", 25, "the clock is wrong", clock),
    Check("disk", None, "storage is full", disk),
    Check("memory", None, "memory is short", memory),
)
