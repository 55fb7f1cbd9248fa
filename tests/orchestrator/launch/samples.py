"""Phones, run specs and phone output for several tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

from orchestrator.inventory.model import Phone
from orchestrator.launch.dataset import Dataset
from orchestrator.launch.request import make_request
from orchestrator.launch.resolve import check_options, merge_options, resolve
from orchestrator.launch.run_spec import PhoneFacts, build_run_spec
from phone_agent.contract.schema import CommunicationSpec, ComputeSpec, DataSpec, RankSpec, RunSpec


def phone(switch: int, port: int) -> Phone:
    return Phone(f"p{switch}-{port:02}", f"sw{switch}", port, IPv4Address(f"10.77.{switch}.{port}"))


def phones(count: int, switches: int = 1) -> tuple[Phone, ...]:
    each = -(-count // switches)
    return tuple(phone(1 + index // each, 1 + index % each) for index in range(count))


def spec(count: int = 4, steps: int = 20, switches: int = 1) -> RunSpec:
    chosen = phones(count, switches)
    ranks = [RankSpec(r, p.name, p.switch, p.port, str(p.address), 8) for r, p in enumerate(chosen)]
    data = DataSpec("synthetic", 6000, (28, 28, 1), 10)
    return RunSpec(
        "20260131-120000-lenet-00aa",
        "lenet",
        data,
        tuple(ranks),
        steps,
        communication=CommunicationSpec("ring"),
        compute=ComputeSpec("cpu"),
        created=1769860800.0,
    )


def telemetry(**changes: Any) -> str:
    """What the probe prints on a healthy, provisioned phone."""
    answer = {
        "epoch": 1000.0,
        "temperature_c": 41.5,
        "temperature_source": "cpu-1-0",
        "battery": {"percentage": 81, "status": "CHARGING", "plugged": "PLUGGED_AC", "temperature": 31.0},
        "frequency_mhz": 2400,
        "frequency_max_mhz": 2841,
        "memory_free_mb": 2800,
        "disk_free_mb": 60000,
        "run": None,
        "agent": {"version": "0.1.0", "release": "0.1.0-abc"},
    }
    return "agent\n" + json.dumps({**answer, **changes}) + "\n"


def event(kind: str, time: float, **fields: Any) -> bytes:
    return json.dumps({"event": kind, "time": time, "rank": 0, "phone": "p1-01", **fields}).encode() + b"\n"


def plan(options: dict[str, Any], phones: Sequence[Phone], data: DataSpec, **facts: Any) -> RunSpec:
    """The run spec for these options, by path. `facts`: of PhoneFacts."""
    resolved = resolve(make_request(options), dataset=Dataset(data))
    return build_run_spec(resolved, phones, PhoneFacts(**facts))


def check(options: dict[str, Any]) -> None:
    check_options(options, merge_options(options))
