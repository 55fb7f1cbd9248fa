"""Run the checks on one phone and stream the results. Phone output is untrusted: it is bounded and sanitized."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from orchestrator.fleet import PhoneConnection, agent
from orchestrator.selftest.report import AssumptionResult, assess
from phone_agent.api.measure import checks
from phone_agent.contract import layout
from phone_agent.contract.assumptions import Assumption, CheckResult, Status, WiredNetwork
from phone_agent.contract.decode import decode_json
from phone_agent.contract.replies import CheckRow

AGENT: Final = layout.ROOT / "selftest-agent"  # uploaded for the test, so it need not be provisioned
_MARGIN_S: Final = 60.0
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
    timeout = sum(check.limit_s + 1 for check in by_name.values()) + _MARGIN_S
    environment = {"PYTHONPATH": str(AGENT)}
    rows = agent.stream_rows(
        connection, parse_row, *_command(wired, only), silence=silence, timeout=timeout, env=environment
    )
    for row in rows:
        check = by_name.get(row.check)
        if check is None:
            continue
        if row.status is None:
            running, started = check.assumption.name, time.monotonic()
            yield check.assumption
        elif running == check.assumption.name:  # ignore repeated results
            running = ""
            yield assess(check.assumption, read_result(row), time.monotonic() - started, virtual=virtual)


def parse_row(line: bytes) -> CheckRow:
    return decode_json(CheckRow, line)


def read_result(row: CheckRow) -> CheckResult:
    evidence = row.evidence if isinstance(row.evidence, dict) else {}
    if len(json.dumps(evidence)) > _MAX_EVIDENCE:
        evidence = {"omitted": "the evidence is too large"}
    return CheckResult(row.status or Status.UNKNOWN, row.detail, evidence)


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
