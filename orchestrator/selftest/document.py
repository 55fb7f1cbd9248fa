"""The report file of a phone: a readable summary, then all data, without anything that identifies the phone."""

from __future__ import annotations

import json
import re
import textwrap
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from orchestrator.selftest.report import AssumptionResult, PhoneReport
from phone_agent.contract.assumptions import Status

WIDTH: Final = 110
MARKS: Final = {Status.OK: "ok     ", Status.FAILED: "FAILED ", Status.UNKNOWN: "unknown"}
VIRTUAL: Final = (
    "These results are from a virtual phone. An 'ok' applies to this computer's processor, kernel, Python and "
    "Open MPI; it proves nothing about real phones."
)
HIDDEN: Final = "(hidden)"
_MAC: Final = re.compile(r"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b")
_IMEI: Final = re.compile(r"\b[0-9]{15}\b")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL
)
_PUBLIC_KEY: Final = re.compile(r"\bAAAA[0-9A-Za-z+/]{32,}={0,2}")
_PATTERNS: Final = (_PRIVATE_KEY, _PUBLIC_KEY, _MAC, _IMEI)


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


def redact(document: Any, secrets: Iterable[str] = ()) -> Any:
    """Replaces keys, MAC addresses, IMEIs and the given secrets in every string and every key of the document."""
    present = tuple(filter(None, secrets))
    if isinstance(document, str):
        return _mask(document, present)
    if isinstance(document, dict):
        return {_mask(str(name), present): redact(value, present) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [redact(value, present) for value in document]
    return document


def _mask(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = re.sub(re.escape(secret), HIDDEN, text, flags=re.IGNORECASE)
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    return text
