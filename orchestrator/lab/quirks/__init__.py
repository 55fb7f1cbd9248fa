"""Android's habits that process 1 of a virtual phone has to arrange, each switched by a key of the scenario.

A habit is brought about by looking at what the scenario says now, so applying it twice is applying it once, and a
phone that is switched on again finds itself as it was.
"""

from __future__ import annotations

from orchestrator.lab.quirks.quirks import Habits
from orchestrator.lab.quirks.sessions import app_environment, sshd_environment

__all__ = ["Habits", "app_environment", "sshd_environment"]
