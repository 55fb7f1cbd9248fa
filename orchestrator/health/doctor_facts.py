"""What a phone told of itself when it was examined. A phone is not trusted: everything is bounded, nothing raises."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from orchestrator.text import one_line
from phone_agent.contract.errors import error_message

MAX_LINES: Final = 5000
_MAX_CORES: Final = 1024
_SSH_VERSION: Final = re.compile(r"OpenSSH_([0-9]{1,4})\.([0-9]{1,4})")
_INTEGER: Final = re.compile(r"-?[0-9]{1,15}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}([.,][0-9]{1,9})?")
_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:~-]{0,127}")
_UNFINISHED: Final = frozenset({"half-configured", "half-installed", "unpacked"})
_RANGE: Final = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")

Lines = Iterable[list[str]]


@dataclass(frozen=True)
class Session:
    """What a login finds: cheap enough to be asked before every run."""

    path: str = ""
    prefix: str = ""
    tmpdir: str = ""
    preload: str = ""
    tmp_writable: bool | None = None
    addresses: tuple[tuple[str, str], ...] = ()  # interface, address/prefix length; without the loopback
    interfaces: tuple[str, ...] = ()  # all of them, with an address or not
    outbound: str = ""  # the interface by which it would begin to talk to this computer, or none; empty: not known
    cpus_allowed: tuple[int, ...] = ()
    cpuset: str = ""
    cores: Mapping[int, int] = field(default_factory=dict)  # core -> how fast it can be, in any unit
    wired_only: bool | None = None  # Open MPI's settings name the wired network
    shell_error: str = ""  # what was said instead, when bash was not found

    @property
    def big_cores(self) -> tuple[int, ...]:
        """Faster than the slowest kind; none where there is one kind only."""
        slowest = min(self.cores.values(), default=0)
        return tuple(core for core, speed in self.cores.items() if speed > slowest)


class Symptom(StrEnum):
    """What the output of a phone's own programs (linker, ssh, Open MPI) shows."""

    MISSING_LIBRARY = "missing_library"
    BAD_SYSTEM_CALL = "bad_system_call"
    LOGIN_DENIED = "login_denied"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"


# Words of foreign programs. They are searched here and nowhere else.
_SYMPTOMS: Final = {
    Symptom.MISSING_LIBRARY: ("CANNOT LINK EXECUTABLE", "error while loading shared libraries", "dlopen failed"),
    Symptom.BAD_SYSTEM_CALL: ("Bad system call",),
    Symptom.LOGIN_DENIED: ("Permission denied", "Host key verification failed", "no such identity"),
    Symptom.UNREACHABLE: ("No route to host", "Network is unreachable", "timed out", "Operation not permitted"),
    Symptom.TIMED_OUT: ("timed out",),
}


@dataclass(frozen=True)
class Ran:
    rc: int
    said: str

    @property
    def timed_out(self) -> bool:
        return self.rc in {124, 137} and not self.said

    @property
    def symptoms(self) -> frozenset[Symptom]:
        return frozenset(each for each, texts in _SYMPTOMS.items() if any(text in self.said for text in texts))


@dataclass(frozen=True)
class Manager:
    """A package manager that runs on the phone."""

    pid: int
    name: str
    age_s: int
    stdin: str
    idle: bool


@dataclass(frozen=True)
class Facts:
    session: Session = field(default_factory=Session)
    complete: bool = True
    clock_ahead_s: float = 0.0  # for certain: 0 where the time between question and answer explains it
    slept_s: float | None = None  # how long one second took
    ran: Mapping[str, Ran] = field(default_factory=dict)
    managers: tuple[Manager, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)  # installed ones
    unfinished: tuple[str, ...] = ()  # packages that dpkg did not finish
    frequency_mhz: tuple[int, int] | None = None  # under load, and at most
    ssh_version: tuple[int, int] | None = None
    exempt: str | None = None  # sshd's PerSourcePenaltyExemptList
    agent_installed: bool | None = None
    sdk: int | None = None  # Android's API level: 31 is Android 12
    phantom: str = ""  # the last time Android said that it killed one of Termux's processes
    processes: int | None = None
    keeper: str | None = None  # of sshd: boot, runit, none
    boot_script: str | None = None  # missing, before-boot, since-boot
    uptime_s: int | None = None
    wake_lock: str | None = None
    disk_mb: int | None = None
    memory_mb: int | None = None
    thermal: str | None = None  # readable, denied
    opencl_library: bool | None = None

    @property
    def battery(self) -> dict[str, Any]:
        """Empty where Termux:API did not answer."""
        ran = self.ran.get("battery")
        try:
            told = json.loads(ran.said) if ran and ran.rc == 0 else None
        except (ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}


def parse_session(output: str, shell_error: str = "") -> Session | None:
    """None when there is not one fact in it."""
    lines = _lines(output)
    return _session(lines, shell_error) if lines else None


def without_facts(output: str) -> str:
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("fact\t"))


def parse_facts(output: str, window: tuple[float, float], shell_error: str = "") -> Facts:
    """`window`: when this computer asked, and when it had the answer."""
    lines = _lines(output)
    single = {key: values for key, *values in lines}
    packages = [
        (values[0], values[1], values[2]) for values in _of(lines, "package", 3) if _PACKAGE.fullmatch(values[0])
    ]
    return Facts(
        session=_session(lines, shell_error),
        complete="end" in single,
        clock_ahead_s=_clock(_first_number(single, "begin"), _first_number(single, "end"), window),
        slept_s=None if (slept := _first_integer(single, "slept_ms")) is None else slept / 1000,
        ran={name: Ran(_integer(rc) or 0, _text(error_message(said), 600)) for name, rc, said in _of(lines, "ran", 3)},
        managers=tuple(_manager(values) for values in _of(lines, "manager", 5)),
        packages={name: _text(version, 60) for name, version, status in packages if status == "installed"},
        unfinished=tuple(
            name for name, _, status in packages if status in {"half-configured", "half-installed", "unpacked"}
        ),
        frequency_mhz=_frequency(single.get("frequency", [])),
        ssh_version=_ssh_version(_first(single, "ssh")),
        exempt=_text(_first(single, "exempt"), 200) if "exempt" in single else None,
        agent_installed=_flag(single, "agent", "installed"),
        sdk=_first_integer(single, "sdk"),
        phantom=_text(_first(single, "phantom"), 300),
        processes=_first_integer(single, "processes"),
        keeper=_text(_first(single, "keeper"), 20) or None,
        boot_script=_text(_first(single, "boot_script"), 20) or None,
        uptime_s=_integer((single.get("boot_script") or ["", ""])[-1]),
        wake_lock=_text(_first(single, "wake_lock"), 20) or None,
        disk_mb=_first_integer(single, "disk_mb"),
        memory_mb=_first_integer(single, "memory_mb"),
        thermal=_text(_first(single, "thermal"), 20) or None,
        opencl_library=_flag(single, "opencl_library", "present"),
    )


def _lines(output: str) -> list[list[str]]:
    facts = [line.split("\t")[1:] for line in output.splitlines()[:MAX_LINES] if line.startswith("fact\t")]
    return [fields for fields in facts if fields]


def _session(lines: list[list[str]], shell_error: str) -> Session:
    single = {key: values for key, *values in lines}
    env = {name: _text(value, 300) for name, value in _of(lines, "env", 2)}
    return Session(
        path=env.get("PATH", ""),
        prefix=env.get("PREFIX", ""),
        tmpdir=env.get("TMPDIR", ""),
        preload=env.get("LD_PRELOAD", ""),
        tmp_writable=_flag(single, "tmp", "writable"),
        addresses=tuple((_text(n, 20), _text(a, 40)) for n, a in _of(lines, "address", 2) if not a.startswith("127.")),
        interfaces=tuple(_text(name, 20) for (name,) in _of(lines, "interface", 1)),
        outbound=_text(_first(single, "outbound"), 20),
        cpus_allowed=parse_cores(_first(single, "cpus_allowed")),
        cpuset=_text(_first(single, "cpuset"), 80),
        cores=_speeds(_of(lines, "core", 2)),
        wired_only=_flag(single, "wired_only", "yes"),
        shell_error=_text(shell_error, 200),
    )


def parse_cores(text: str) -> tuple[int, ...]:
    """The kernel's list form: '0-2,4' -> (0, 1, 2, 4). Empty where it is not of that form."""
    cores: list[int] = []
    for part in text.strip().split(",")[:64]:
        found = _RANGE.fullmatch(part)
        if found is None:
            return ()
        cores.extend(range(int(found[1]), int(found[2] or found[1]) + 1))
    return tuple(cores[:_MAX_CORES])


def _of(lines: Lines, key: str, width: int) -> list[list[str]]:
    return [fields[1:] for fields in lines if fields[0] == key and len(fields) == width + 1]


def _speeds(pairs: Lines) -> dict[int, int]:
    known = [(_integer(core), _integer(speed)) for core, speed in pairs]
    return {core: speed for core, speed in known[:_MAX_CORES] if core is not None and speed is not None}


def _manager(values: list[str]) -> Manager:
    pid, name, age, stdin, state = values
    return Manager(_integer(pid) or 0, _text(name, 20), _integer(age) or 0, _text(stdin, 60), state == "idle")


def _frequency(values: list[str]) -> tuple[int, int] | None:
    numbers = [_integer(value) for value in values]
    return (numbers[0], numbers[1]) if len(numbers) == 2 and numbers[0] and numbers[1] else None


def _clock(begin: float | None, end: float | None, window: tuple[float, float]) -> float:
    """The phone read its clock after we asked and before we had the answer: what is outside of that is an error."""
    asked, answered = window
    if begin is not None and begin < asked:
        return begin - asked
    return max(0.0, end - answered) if end is not None else 0.0


def _ssh_version(text: str) -> tuple[int, int] | None:
    found = _SSH_VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else None


def _flag(single: Mapping[str, list[str]], key: str, yes: str) -> bool | None:
    return _first(single, key) == yes if key in single else None


def _first(single: Mapping[str, list[str]], key: str) -> str:
    values = single.get(key)
    return values[0] if values else ""


def _first_integer(single: Mapping[str, list[str]], key: str) -> int | None:
    return _integer(_first(single, key))


def _first_number(single: Mapping[str, list[str]], key: str) -> float | None:
    text = _first(single, key)
    number = float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else None


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _text(text: str, limit: int) -> str:
    return one_line(text.strip(), limit)
