"""The registry: every check, by the row of the table in docs/doctor.md, those without a row last."""

from __future__ import annotations

from typing import Final

from orchestrator.doctor.checks import body, programs, reach, session
from orchestrator.doctor.finding import Check

ALL: Final[tuple[Check, ...]] = tuple(
    sorted((*reach.CHECKS, *session.CHECKS, *programs.CHECKS, *body.CHECKS), key=lambda check: check.row or 99)
)
BEFORE_RUNS: Final[tuple[Check, ...]] = tuple(check for check in ALL if check.before_runs)
