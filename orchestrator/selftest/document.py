"""The file that can be sent: readable at its top, complete below, without what identifies the phone."""

from __future__ import annotations

import json
import textwrap
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from orchestrator.selftest.redact import masked
from orchestrator.selftest.report import Answer, PhoneReport
from phone_agent.contract.assumptions import Status

WIDTH: Final = 110
MARKS: Final = {Status.OK: "ok     ", Status.FAILED: "FAILED ", Status.UNKNOWN: "unknown"}
VIRTUAL: Final = (
    "A virtual phone answered. What is ok here is ok with this computer's processor, kernel, Python and Open MPI; "
    "of real phones it settles nothing."
)


def document(report: PhoneReport, made: float, *, show_ids: bool = False) -> dict[str, Any]:
    phone = report.phone
    whole = {
        "read_me": _readable(report, made),
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
        "checks": [answer.as_json() for answer in report.answers],
    }
    hidden: dict[str, Any] = whole if show_ids else masked(whole, (phone.mac or "", phone.serial or ""))
    return hidden


def write(report: PhoneReport, directory: Path, made: float, *, show_ids: bool = False) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(made))
    path = directory / f"selftest-{report.phone.name}-{stamp}.json"
    path.write_text(json.dumps(document(report, made, show_ids=show_ids), indent=1, ensure_ascii=False) + "\n")
    return path


def _readable(report: PhoneReport, made: float) -> list[str]:
    counts = ", ".join(f"{count} {status}" for status, count in report.count().items())
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(made))
    lines = [f"clusterctl selftest of {report.phone.name} ({report.phone.where}), {when}: {counts}"]
    lines += textwrap.wrap(VIRTUAL, WIDTH) if report.virtual else []
    lines += [f"The phone could not be asked to the end: {report.error}"] if report.error else []
    return [*lines, *(line for answer in report.answers for line in _paragraph(answer))]


def _paragraph(answer: Answer) -> list[str]:
    mark = f"{MARKS[answer.status]} {answer.belief.name}{' (needed)' if answer.belief.needed else ''}: "
    said = textwrap.wrap(f"{mark}{answer.belief.settles}.", WIDTH)
    return [*said, *textwrap.wrap(answer.told, WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10)]
