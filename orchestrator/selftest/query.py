"""Run the checks on one phone and stream the results. Phone output is untrusted: it is bounded and sanitized."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator.fleet import PhoneConnection, agent
from orchestrator.selftest.report import AssumptionResult, assess
from orchestrator.text import one_line
from phone_agent.api.measure import checks
from phone_agent.contract import layout
from phone_agent.contract.assumptions import Assumption, CheckResult, Status, WiredNetwork

AGENT: Final = layout.ROOT / "selftest-agent"  # uploaded for the test, so it need not be provisioned
_MARGIN_S: Final = 60.0
_MAX_DETAIL: Final = 600
_MAX_EVIDENCE: Final = 20_000


def install_agent(connection: PhoneConnection, bundle: Path) -> None:
    connection.put_tree(bundle, AGENT)


def remove_agent(connection: PhoneConnection) -> None:
    connection.run(["rm", "-rf", "--", str(AGENT)])


def check_assumptions(
    connection: PhoneConnection, wired: WiredNetwork, *, virtual: bool, only: Collection[str] = ()
) -> Iterator[Assumption | AssumptionResult]:
    """Yield each assumption when its check starts, then its result. Results that the phone never sends are missing."""
    by_name = {check.assumption.name: check for check in checks(wired)}
    silence = max(check.limit_s for check in by_name.values()) + _MARGIN_S
    running, started = "", time.monotonic()
    for row in agent.stream_rows(connection, *_command(wired, only), silence=silence, env={"PYTHONPATH": str(AGENT)}):
        check = by_name.get(str(row.get("check"))) if isinstance(row, dict) else None
        if check is None:
            continue
        if "status" not in row:
            running, started = check.assumption.name, time.monotonic()
            yield check.assumption
        elif running == check.assumption.name:  # ignore repeated results
            running = ""
            yield assess(check.assumption, parse_result(row), time.monotonic() - started, virtual=virtual)


def parse_result(row: Mapping[str, Any]) -> CheckResult:
    """Accepts any JSON object."""
    try:
        status = Status(str(row.get("status")))
    except ValueError:
        return CheckResult(Status.UNKNOWN, "invalid result from the phone")
    return CheckResult(status, one_line(str(row.get("detail")), _MAX_DETAIL), _bounded_evidence(row.get("evidence")))


def _bounded_evidence(evidence: Any) -> dict[str, Any]:
    if not isinstance(evidence, dict):
        return {}
    if len(json.dumps(evidence)) > _MAX_EVIDENCE:
        return {"omitted": "the evidence is too large"}
    return evidence


def _command(wired: WiredNetwork, only: Collection[str]) -> list[str]:
    network = (
        "--address",
        wired.address,
        "--interface",
        wired.interface,
        "--host",
        wired.host,
        "--port",
        str(wired.port),
    )
    return ["check-assumptions", *network, *(f"--only={name}" for name in only)]
