"""How a phone is doing, asked in one round trip that any Termux can answer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orchestrator.health.doctor_facts import Session, parse_session, without_facts
from orchestrator.health.scripts import SESSION, script_anyhow
from orchestrator.text import one_line
from phone_agent.contract.errors import error_message

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

PROBE = SESSION + files("orchestrator.health").joinpath("vitals.sh").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Battery:
    percent: int | None
    status: str | None  # CHARGING, DISCHARGING, FULL, NOT_CHARGING
    plugged: bool | None
    temperature_c: float | None


@dataclass(frozen=True)
class CurrentRun:
    id: str
    state: str
    step: int | None


@dataclass(frozen=True)
class Vitals:
    """Every figure may be missing: phones differ in what they let an application read."""

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
    session: Session | None = None  # what a login finds

    @property
    def provisioned(self) -> bool:
        return self.agent_release is not None


def ask_vitals(connection: PhoneConnection) -> Vitals:
    asked = time.time()
    answer, shell_error = script_anyhow(connection, PROBE, timeout=40)
    return parse_vitals(answer.stdout, answer.stderr, (asked, time.time()), shell_error)


def parse_vitals(stdout: str, stderr: str, window: tuple[float, float], shell_error: str = "") -> Vitals:
    """`window`: when this computer asked and when it had the answer, by its own clock."""
    vitals = _parse(without_facts(stdout), stderr, window)
    return replace(vitals, session=parse_session(stdout, shell_error))


def _parse(stdout: str, stderr: str, window: tuple[float, float]) -> Vitals:
    kind, _, body = stdout.partition("\n")
    raw = _object(body) if kind.strip() == "agent" else None
    return _bare(body, stderr, window) if raw is None else _telemetry(raw, window)


def _telemetry(raw: Mapping[str, Any], window: tuple[float, float]) -> Vitals:
    agent = _mapping(raw.get("agent"))
    return Vitals(
        agent_release=_text(agent.get("release")) or "unknown",
        agent_version=_text(agent.get("version")),
        clock_offset_s=clock_offset(_number(raw.get("epoch")), window),
        temperature_c=_number(raw.get("temperature_c")),
        temperature_source=_text(raw.get("temperature_source")),
        battery=_battery(raw.get("battery")),
        frequency_mhz=_whole(raw.get("frequency_mhz")),
        frequency_max_mhz=_whole(raw.get("frequency_max_mhz")),
        memory_free_mb=_whole(raw.get("memory_free_mb")),
        disk_free_mb=_whole(raw.get("disk_free_mb")),
        run=_run(raw.get("run")),
    )


def _bare(body: str, stderr: str, window: tuple[float, float]) -> Vitals:
    pairs = dict(line.split(" ", 1) for line in body.splitlines()[:50] if " " in line)
    complaint = error_message(stderr).strip().splitlines()
    broken = pairs.get("agent") == "broken"
    return Vitals(
        agent_problem=one_line(complaint[-1] if complaint else "the agent does not answer", 120) if broken else None,
        clock_offset_s=clock_offset(_number(pairs.get("epoch")), window),
        temperature_c=_number(pairs.get("temperature_c")),
        frequency_mhz=_whole(pairs.get("scaling_cur_freq")),
        frequency_max_mhz=_whole(pairs.get("cpuinfo_max_freq")),
        memory_free_mb=_whole(pairs.get("memory_free_mb")),
        disk_free_mb=_whole(pairs.get("disk_free_mb")),
    )


def clock_offset(epoch: float | None, window: tuple[float, float]) -> float | None:
    """How far the phone's clock is off for certain: zero when it read a time between question and answer."""
    if epoch is None:
        return None
    asked, answered = window
    return min(epoch - asked, 0.0) + max(epoch - answered, 0.0)


def _battery(raw: Any) -> Battery | None:
    if not isinstance(raw, dict):
        return None
    plugged = _text(raw.get("plugged"))
    return Battery(
        percent=_whole(raw.get("percentage")),
        status=_text(raw.get("status")),
        plugged=None if plugged is None else plugged != "UNPLUGGED",
        temperature_c=_number(raw.get("temperature")),
    )


def _run(raw: Any) -> CurrentRun | None:
    if not isinstance(raw, dict) or (run_id := _text(raw.get("id"))) is None:
        return None
    return CurrentRun(run_id, _text(raw.get("state")) or "unknown", _whole(raw.get("step")))


def _object(text: str) -> dict[str, Any] | None:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def _mapping(raw: Any) -> Mapping[str, Any]:
    return raw if isinstance(raw, dict) else {}


def _text(raw: Any) -> str | None:
    return one_line(raw, 80) if isinstance(raw, str) and raw else None


def _number(raw: Any) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    number = _converted(float, raw)
    return number if number is not None and math.isfinite(number) else None


def _whole(raw: Any) -> int | None:
    number = _number(raw)
    return None if number is None else round(number)


def _converted(kind: Callable[[Any], float], raw: Any) -> float | None:
    try:
        return kind(raw)
    except (ValueError, OverflowError):
        return None
