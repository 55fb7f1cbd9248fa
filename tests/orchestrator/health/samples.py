"""Phones as they are seen, healthy unless something is changed."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from orchestrator.fleet.result import Phase
from orchestrator.health.checks import ALL
from orchestrator.health.doctor_facts import Facts, Ran, Session
from orchestrator.health.finding import Check, Finding
from orchestrator.health.observation import Common, Contact, Seen
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode

PREFIX = "/data/data/com.termux/files/usr"
SUBNET = IPv4Network("10.77.0.0/16")
OK = Ran(0, "")
BATTERY = {"plugged": "PLUGGED_AC", "status": "CHARGING", "temperature": 29.4, "percentage": 96}

SESSION = Session(
    path=f"{PREFIX}/bin",
    prefix=PREFIX,
    tmpdir=f"{PREFIX}/tmp",  # noqa: S108  (Termux's)
    preload=f"{PREFIX}/lib/libtermux-exec-ld-preload.so",
    tmp_writable=True,
    addresses=(("eth0", "10.77.1.1/16"),),
    interfaces=("lo", "eth0"),
    cpus_allowed=tuple(range(8)),
    cpuset="/foreground",
    cores={0: 285, 1: 285, 2: 285, 3: 285, 4: 871, 5: 871, 6: 871, 7: 1024},
    wired_only=True,
)


def phone(port: int = 1, switch: int = 1, serial: str | None = None) -> Phone:
    return Phone(f"p{switch}-{port:02}", f"sw{switch}", port, IPv4Address(f"10.77.{switch}.{port}"), serial=serial)


def battery(**changes: Any) -> Ran:
    return Ran(0, json.dumps({**BATTERY, **changes}))


FACTS = Facts(
    session=SESSION,
    slept_s=1.001,
    ran={
        **dict.fromkeys(("mpirun", "mpi", "agent", "neighbour", "shebang", "link"), OK),
        "python": Ran(0, "android"),
        "battery": battery(),
        "opencl": Ran(0, "1 platforms"),
    },
    packages={"openmpi": "4.1.5-1", "bash": "5.3"},
    frequency_mhz=(2700, 2841),
    ssh_version=(10, 5),
    exempt="10.77.0.0/16",
    agent_installed=True,
    sdk=31,
    processes=14,
    keeper="boot",
    boot_script="before-boot",
    uptime_s=7200,
    wake_lock="held",
    disk_mb=60000,
    memory_mb=2800,
    thermal="readable",
    opencl_library=True,
)
COMMON = Common(
    interface="eth0", subnet=SUBNET, versions=dict(FACTS.packages), sizes={"sw1": 8}, host="10.77.0.1", now=1_000_000.0
)
HEALTHY = Seen(phone(), Contact(), FACTS, common=COMMON, neighbour=phone(2))


def told(**changes: Any) -> Seen:
    """Healthy but for these facts; `ran` is added to what ran."""
    if "ran" in changes:
        changes["ran"] = {**FACTS.ran, **changes["ran"]}
    return replace(HEALTHY, facts=replace(FACTS, **changes))


def session(**changes: Any) -> Seen:
    return told(session=replace(SESSION, **changes))


def unreached(code: ErrorCode | None, phase: Phase = Phase.TCP, **changes: Any) -> Seen:
    contact = Contact(phase, "this is how it failed", "", code, **changes)
    return Seen(phone(), contact, common=COMMON)


def check(name: str) -> Check:
    return next(each for each in ALL if each.name == name)


def finding(name: str, seen: Seen) -> Finding | None:
    return check(name).judge(seen)
