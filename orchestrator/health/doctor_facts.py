"""Facts that `doctor` collects with examine.sh. Phones are not trusted: values are bounded, nothing raises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from orchestrator.health.session_facts import SessionFacts, bounded, flag, parse_fact_lines, session_facts
from orchestrator.provision.fact_parsing import (
    Battery,
    FactLines,
    as_number,
    clock_offset,
    parse_battery,
    parse_integer,
    parse_ssh_version,
)
from phone_agent.contract.errors import error_message

_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:~-]{0,127}")
_UNFINISHED: Final = frozenset({"half-configured", "half-installed", "unpacked"})


class Symptom(StrEnum):
    """What the output of a program on the phone (linker, ssh, Open MPI) indicates."""

    MISSING_LIBRARY = "missing_library"
    BAD_SYSTEM_CALL = "bad_system_call"
    LOGIN_DENIED = "login_denied"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"


# Texts of foreign programs. They are searched for here and nowhere else.
_SYMPTOMS: Final = {
    Symptom.MISSING_LIBRARY: ("CANNOT LINK EXECUTABLE", "error while loading shared libraries", "dlopen failed"),
    Symptom.BAD_SYSTEM_CALL: ("Bad system call",),
    Symptom.LOGIN_DENIED: ("Permission denied", "Host key verification failed", "no such identity"),
    Symptom.UNREACHABLE: ("No route to host", "Network is unreachable", "timed out", "Operation not permitted"),
    Symptom.TIMED_OUT: ("timed out",),
}


@dataclass(frozen=True)
class ProbeResult:
    """The outcome of a command that examine.sh tried."""

    rc: int
    output: str

    @property
    def timed_out(self) -> bool:
        return self.rc in {124, 137} and not self.output

    @property
    def symptoms(self) -> frozenset[Symptom]:
        return frozenset(each for each, texts in _SYMPTOMS.items() if any(text in self.output for text in texts))


@dataclass(frozen=True)
class PackageManager:
    """An apt or dpkg process on the phone."""

    pid: int
    name: str
    age_s: int
    stdin: str
    idle: bool


@dataclass(frozen=True)
class DoctorFacts:
    session: SessionFacts = field(default_factory=SessionFacts)
    complete: bool = True
    clock_ahead_s: float = 0.0  # beyond doubt: 0 if the time between request and answer explains the difference
    slept_s: float | None = None  # how long `sleep 1` took
    probes: Mapping[str, ProbeResult] = field(default_factory=dict)
    package_managers: tuple[PackageManager, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)  # installed package -> version
    unfinished_packages: tuple[str, ...] = ()  # dpkg was interrupted
    frequency_mhz: tuple[int, int] | None = None  # under load, and the maximum
    ssh_version: tuple[int, int] | None = None
    penalty_exempt: str | None = None  # PerSourcePenaltyExemptList of sshd
    agent_installed: bool | None = None
    sdk: int | None = None  # API level of Android: 31 is Android 12
    phantom_kill: str = ""  # the last log line about a Termux process that Android killed
    processes: int | None = None
    sshd_supervisor: str | None = None  # what restarts sshd: boot, runit, none
    boot_script: str | None = None  # missing, before-boot, since-boot
    uptime_s: int | None = None
    wake_lock: str | None = None
    disk_mb: int | None = None
    memory_mb: int | None = None
    thermal: str | None = None  # readable, denied
    opencl_library: bool | None = None

    @property
    def battery(self) -> Battery | None:
        """None if Termux:API did not answer."""
        probe = self.probes.get("battery")
        return parse_battery(probe.output) if probe and probe.rc == 0 else None


def parse_doctor_facts(output: str, window: tuple[float, float], shell_error: str = "") -> DoctorFacts:
    """`window`: when this computer sent the request and when it had the answer."""
    lines = parse_fact_lines(output)
    packages = [row for row in lines.rows("package", 3) if _PACKAGE.fullmatch(row[0])]
    slept_ms = lines.integer("slept_ms")
    return DoctorFacts(
        session=session_facts(lines, shell_error),
        complete="end" in lines,
        clock_ahead_s=_clock_ahead(lines, window),
        slept_s=None if slept_ms is None else slept_ms / 1000,
        probes={
            name: ProbeResult(parse_integer(rc) or 0, bounded(error_message(text), 600))
            for name, rc, text in lines.rows("probe", 3)
        },
        package_managers=tuple(_package_manager(row) for row in lines.rows("manager", 5)),
        packages={name: bounded(version, 60) for name, version, status in packages if status == "installed"},
        unfinished_packages=tuple(name for name, _, status in packages if status in _UNFINISHED),
        frequency_mhz=_frequency(lines.values("frequency")),
        ssh_version=parse_ssh_version(lines.text("ssh")),
        penalty_exempt=bounded(lines.text("penalty_exempt"), 200) if "penalty_exempt" in lines else None,
        agent_installed=flag(lines, "agent", "installed"),
        sdk=lines.integer("sdk"),
        phantom_kill=bounded(lines.text("phantom_kill"), 300),
        processes=lines.integer("processes"),
        sshd_supervisor=bounded(lines.text("sshd_supervisor"), 20) or None,
        boot_script=bounded(lines.text("boot_script"), 20) or None,
        uptime_s=parse_integer((lines.values("boot_script") or [""])[-1]),
        wake_lock=bounded(lines.text("wake_lock"), 20) or None,
        disk_mb=lines.integer("disk_mb"),
        memory_mb=lines.integer("memory_mb"),
        thermal=bounded(lines.text("thermal"), 20) or None,
        opencl_library=flag(lines, "opencl_library", "present"),
    )


def _package_manager(row: list[str]) -> PackageManager:
    pid, name, age, stdin, state = row
    return PackageManager(
        parse_integer(pid) or 0, bounded(name, 20), parse_integer(age) or 0, bounded(stdin, 60), state == "idle"
    )


def _frequency(values: list[str]) -> tuple[int, int] | None:
    numbers = [parse_integer(value) for value in values]
    return (numbers[0], numbers[1]) if len(numbers) == 2 and numbers[0] and numbers[1] else None


def _clock_ahead(lines: FactLines, window: tuple[float, float]) -> float:
    """The script reads the clock at its begin and its end: the first shows a slow clock, the second a fast one."""
    begin, end = (as_number(lines.text(key).replace(",", ".")) for key in ("begin", "end"))
    return min(clock_offset(begin, window) or 0.0, 0.0) or max(clock_offset(end, window) or 0.0, 0.0)
