"""The registry: every check, by the row of the table in docs/guide/troubleshooting.md, those without a row last."""

from __future__ import annotations

from typing import Final

from orchestrator.health.checks import device, programs, reach, session
from orchestrator.health.finding import Check

ALL: Final[tuple[Check, ...]] = tuple(
    sorted((*reach.CHECKS, *session.CHECKS, *programs.CHECKS, *device.CHECKS), key=lambda check: check.row or 99)
)
BEFORE_RUNS: Final[tuple[Check, ...]] = tuple(check for check in ALL if check.before_runs)
