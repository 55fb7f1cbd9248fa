"""The assumptions that a phone checks, each with its time limit."""

from __future__ import annotations

from phone_agent.selftest.assumptions import checks

__all__ = ["checks"]
