"""Vital signs of a phone, in one round trip that works on any Termux."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from orchestrator.fleet import PhoneConnection
from orchestrator.health.scripts import SESSION, read_health_script, run_script_with_fallback
from orchestrator.health.session_facts import SessionFacts, parse_session_facts, strip_fact_lines
from orchestrator.provision.fact_parsing import Battery, as_number, clock_offset, read_battery
from orchestrator.text import one_line
from phone_agent.contract.decode import DecodeError, decode, decode_json
from phone_agent.contract.errors import error_message
from phone_agent.contract.replies import RunSummary, Telemetry

_SHELL_NAMES = {"scaling_cur_freq": "frequency_mhz", "cpuinfo_max_freq": "frequency_max_mhz"}
PROBE = SESSION + read_health_script("vitals.sh")


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
    run: RunSummary | None = None
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
    if kind.strip() == "agent":
        with suppress(DecodeError):
            telemetry = decode_json(Telemetry, body)
            agent = telemetry.agent
            found = replace(_vitals(telemetry, window), agent_release=agent.release or "unknown")
            return replace(found, agent_version=agent.version)
    return _from_shell(body, stderr, window)


def _vitals(telemetry: Telemetry, window: tuple[float, float]) -> Vitals:
    return Vitals(
        clock_offset_s=clock_offset(telemetry.epoch, window),
        temperature_c=telemetry.temperature_c,
        temperature_source=telemetry.temperature_source,
        battery=read_battery(telemetry.battery),
        frequency_mhz=_rounded(telemetry.frequency_mhz),
        frequency_max_mhz=_rounded(telemetry.frequency_max_mhz),
        memory_free_mb=_rounded(telemetry.memory_free_mb),
        disk_free_mb=_rounded(telemetry.disk_free_mb),
        run=telemetry.run,
    )


def _from_shell(body: str, stderr: str, window: tuple[float, float]) -> Vitals:
    pairs = dict(line.split(" ", 1) for line in body.splitlines()[:50] if " " in line)
    error_lines = error_message(stderr).strip().splitlines()
    broken = pairs.get("agent") == "broken"
    numbers = {_SHELL_NAMES.get(name, name): as_number(text) for name, text in pairs.items()}
    return replace(
        _vitals(decode(Telemetry, numbers), window),
        agent_problem=one_line(error_lines[-1] if error_lines else "no answer", 120) if broken else None,
    )


def _rounded(number: float | None) -> int | None:
    return None if number is None else round(number)
