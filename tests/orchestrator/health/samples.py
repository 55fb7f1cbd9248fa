"""Sample observations of phones, healthy unless changed."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from orchestrator.fleet.result import Phase
from orchestrator.health.checks import ALL_CHECKS
from orchestrator.health.doctor_facts import DoctorFacts, ProbeResult
from orchestrator.health.finding import Check, Finding
from orchestrator.health.observation import ClusterFacts, ContactResult, Observation
from orchestrator.health.session_facts import SessionFacts
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode

PREFIX = "/data/data/com.termux/files/usr"
SUBNET = IPv4Network("10.77.0.0/16")
OK = ProbeResult(0, "")
BATTERY = {"plugged": "PLUGGED_AC", "status": "CHARGING", "temperature": 29.4, "percentage": 96}

SESSION = SessionFacts(
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


def battery(**changes: Any) -> ProbeResult:
    return ProbeResult(0, json.dumps({**BATTERY, **changes}))


FACTS = DoctorFacts(
    session=SESSION,
    slept_s=1.001,
    probes={
        **dict.fromkeys(("mpirun", "mpi", "agent", "neighbor", "shebang", "link"), OK),
        "python": ProbeResult(0, "android"),
        "battery": battery(),
        "opencl": ProbeResult(0, "1 platforms"),
    },
    packages={"openmpi": "4.1.5-1", "bash": "5.3"},
    frequency_mhz=(2700, 2841),
    ssh_version=(10, 5),
    penalty_exempt="10.77.0.0/16",
    agent_installed=True,
    sdk=31,
    processes=14,
    sshd_supervisor="boot",
    boot_script="before-boot",
    uptime_s=7200,
    wake_lock="held",
    disk_mb=60000,
    memory_mb=2800,
    thermal="readable",
    opencl_library=True,
)
CLUSTER = ClusterFacts(
    interface="eth0", subnet=SUBNET, versions=dict(FACTS.packages), sizes={"sw1": 8}, host="10.77.0.1", now=1_000_000.0
)
HEALTHY = Observation(phone(), ContactResult(), FACTS, cluster=CLUSTER, neighbor=phone(2))


def with_facts(**changes: Any) -> Observation:
    """Healthy except for these facts; `probes` are added to the healthy ones."""
    if "probes" in changes:
        changes["probes"] = {**FACTS.probes, **changes["probes"]}
    return replace(HEALTHY, facts=replace(FACTS, **changes))


def with_session(**changes: Any) -> Observation:
    return with_facts(session=replace(SESSION, **changes))


def unreachable(code: ErrorCode | None, phase: Phase = Phase.TCP, **changes: Any) -> Observation:
    contact = ContactResult(phase, "this is how it failed", "", code, **changes)
    return Observation(phone(), contact, cluster=CLUSTER)


def check(name: str) -> Check:
    return next(each for each in ALL_CHECKS if each.name == name)


def finding(name: str, seen: Observation) -> Finding | None:
    return check(name).evaluate(seen)
