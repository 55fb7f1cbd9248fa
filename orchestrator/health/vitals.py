"""Vital signs of a phone, in one round trip that works on any Termux."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.fleet import PhoneConnection
from orchestrator.health.scripts import SESSION, read_health_script, run_script_with_fallback
from orchestrator.health.session_facts import SessionFacts, parse_session_facts, strip_fact_lines
from orchestrator.provision.fact_parsing import (
    Battery,
    as_integer,
    as_number,
    as_text,
    clock_offset,
    parse_battery,
    parse_object,
)
from orchestrator.text import one_line
from phone_agent.contract.errors import error_message

PROBE = SESSION + read_health_script("vitals.sh")


@dataclass(frozen=True)
class CurrentRun:
    id: str
    state: str
    step: int | None


@dataclass(frozen=True)
class Vitals:
    """Every value may be missing: phones differ in what they let apps read."""

    agent_release: str | None = None
    agent_version: str | None = None
    agent_problem: str | None = None
    clock_offset_s: float | None = None
    temperature_c: float | None = None
    temperature_source: str | None = None
    battery: Battery | None = None
    frequency_mhz: int | None = None
    frequency_max_mhz: int | None = None
    memory_free_mb: int | None = None
    disk_free_mb: int | None = None
    run: CurrentRun | None = None
    session: SessionFacts | None = None

    @property
    def provisioned(self) -> bool:
        return self.agent_release is not None


def collect_vitals(connection: PhoneConnection) -> Vitals:
    sent = time.time()
    answer, shell_error = run_script_with_fallback(connection, PROBE, timeout=40)
    return parse_vitals(answer.stdout, answer.stderr, (sent, time.time()), shell_error)


def parse_vitals(stdout: str, stderr: str, window: tuple[float, float], shell_error: str = "") -> Vitals:
    """`window`: when this computer sent the request and when it had the answer."""
    vitals = _parse(strip_fact_lines(stdout), stderr, window)
    return replace(vitals, session=parse_session_facts(stdout, shell_error))


def _parse(stdout: str, stderr: str, window: tuple[float, float]) -> Vitals:
    kind, _, body = stdout.partition("\n")
    raw = parse_object(body) if kind.strip() == "agent" else None
    return _from_shell(body, stderr, window) if raw is None else _from_agent(raw, window)


def _from_agent(raw: Mapping[str, Any], window: tuple[float, float]) -> Vitals:
    agent = _mapping(raw.get("agent"))
    return Vitals(
        agent_release=as_text(agent.get("release")) or "unknown",
        agent_version=as_text(agent.get("version")),
        clock_offset_s=clock_offset(as_number(raw.get("epoch")), window),
        temperature_c=as_number(raw.get("temperature_c")),
        temperature_source=as_text(raw.get("temperature_source")),
        battery=parse_battery(raw.get("battery")),
        frequency_mhz=as_integer(raw.get("frequency_mhz")),
        frequency_max_mhz=as_integer(raw.get("frequency_max_mhz")),
        memory_free_mb=as_integer(raw.get("memory_free_mb")),
        disk_free_mb=as_integer(raw.get("disk_free_mb")),
        run=_run(raw.get("run")),
    )


def _from_shell(body: str, stderr: str, window: tuple[float, float]) -> Vitals:
    pairs = dict(line.split(" ", 1) for line in body.splitlines()[:50] if " " in line)
    error_lines = error_message(stderr).strip().splitlines()
    broken = pairs.get("agent") == "broken"
    return Vitals(
        agent_problem=one_line(error_lines[-1] if error_lines else "no answer", 120) if broken else None,
        clock_offset_s=clock_offset(as_number(pairs.get("epoch")), window),
        temperature_c=as_number(pairs.get("temperature_c")),
        frequency_mhz=as_integer(pairs.get("scaling_cur_freq")),
        frequency_max_mhz=as_integer(pairs.get("cpuinfo_max_freq")),
        memory_free_mb=as_integer(pairs.get("memory_free_mb")),
        disk_free_mb=as_integer(pairs.get("disk_free_mb")),
    )


def _run(raw: Any) -> CurrentRun | None:
    if not isinstance(raw, dict) or (run_id := as_text(raw.get("id"))) is None:
        return None
    return CurrentRun(run_id, as_text(raw.get("state")) or "unknown", as_integer(raw.get("step")))


def _mapping(raw: Any) -> Mapping[str, Any]:
    return raw if isinstance(raw, dict) else {}
