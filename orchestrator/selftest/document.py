"""The report file of a phone: a readable summary, then all data, without anything that identifies the phone."""

from __future__ import annotations

import json
import textwrap
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from orchestrator.selftest.redact import redact
from orchestrator.selftest.report import AssumptionResult, PhoneReport
from phone_agent.contract.assumptions import Status

WIDTH: Final = 110
MARKS: Final = {Status.OK: "ok     ", Status.FAILED: "FAILED ", Status.UNKNOWN: "unknown"}
VIRTUAL: Final = (
    "These results are from a virtual phone. An 'ok' applies to this computer's processor, kernel, Python and "
    "Open MPI; it proves nothing about real phones."
)


def document(report: PhoneReport, made: float, *, show_ids: bool = False) -> dict[str, Any]:
    phone = report.phone
    full = {
        "read_me": _summary(report, made),
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)),
        "clusterctl": version("clusterctl"),
        "phone": {
            "name": phone.name,
            "port": phone.where,
            "address": str(phone.address),
            "virtual": report.virtual,
            "mac": phone.mac,
            "serial": phone.serial,
        },
        "ok": report.ok,
        "summary": report.count(),
        "error": report.error,
        "checks": [result.as_json() for result in report.results],
    }
    redacted: dict[str, Any] = full if show_ids else redact(full, (phone.mac or "", phone.serial or ""))
    return redacted


def write(report: PhoneReport, directory: Path, made: float, *, show_ids: bool = False) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(made))
    path = directory / f"selftest-{report.phone.name}-{stamp}.json"
    path.write_text(json.dumps(document(report, made, show_ids=show_ids), indent=1, ensure_ascii=False) + "\n")
    return path


def _summary(report: PhoneReport, made: float) -> list[str]:
    counts = ", ".join(f"{count} {status}" for status, count in report.count().items())
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(made))
    lines = [f"clusterctl selftest of {report.phone.name} ({report.phone.where}), {when}: {counts}"]
    lines += textwrap.wrap(VIRTUAL, WIDTH) if report.virtual else []
    lines += [f"The selftest did not finish: {report.error}"] if report.error else []
    return [*lines, *(line for result in report.results for line in _paragraph(result))]


def _paragraph(result: AssumptionResult) -> list[str]:
    mark = f"{MARKS[result.status]} {result.assumption.name}{' (required)' if result.assumption.required else ''}: "
    heading = textwrap.wrap(f"{mark}{result.assumption.statement}.", WIDTH)
    return [*heading, *textwrap.wrap(result.detail, WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10)]
