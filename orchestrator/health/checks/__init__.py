"""All checks, in the order of the table in docs/guide/troubleshooting.md; those without a row come last."""

from __future__ import annotations

from typing import Final

from orchestrator.health.checks import device, programs, reach, session
from orchestrator.health.finding import Check

ALL_CHECKS: Final[tuple[Check, ...]] = tuple(
    sorted((*reach.CHECKS, *session.CHECKS, *programs.CHECKS, *device.CHECKS), key=lambda check: check.row or 99)
)
PREFLIGHT_CHECKS: Final[tuple[Check, ...]] = tuple(check for check in ALL_CHECKS if check.in_preflight)
