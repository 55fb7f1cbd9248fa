"""Quirks of Android phones that process 1 of a virtual phone simulates, each controlled by a setting.

A quirk is applied by reading the stored setting, so applying it is idempotent, and quirks survive a power cycle.
"""

from __future__ import annotations

from orchestrator.lab.quirks.quirks import Quirks
from orchestrator.lab.quirks.sessions import app_environment, sshd_environment

__all__ = ["Quirks", "app_environment", "sshd_environment"]
