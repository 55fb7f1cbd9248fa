"""Runs a check in a process of its own: one that hangs, crashes or is killed by the kernel gives a result as well."""

from __future__ import annotations

from typing import Any

from phone_agent.contract.assumptions import CheckFunction, CheckResult, Status, failed, unknown
from phone_agent.device.isolated import IsolatedError, run_isolated


def run_isolated_check(check: CheckFunction, limit_s: float) -> CheckResult:
    """Never raises, and never takes much longer than `limit_s`. To be called while this process has one thread."""
    try:
        result = run_isolated(lambda: _as_json(check()), limit_s, new_session=True)
    except IsolatedError as error:
        if error.traceback:
            return unknown(str(error), traceback=error.traceback)
        return failed(str(error), **({"signal": error.signal} if error.signal else {}))
    return CheckResult(Status(result["status"]), result["detail"], result["evidence"])


def _as_json(result: CheckResult) -> dict[str, Any]:
    return {"status": result.status, "detail": result.detail, "evidence": result.evidence}
