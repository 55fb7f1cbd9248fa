"""The agent's verbs, called over SSH."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PhoneError
from phone_agent.contract import layout

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

ENVIRONMENT = {"PYTHONPATH": str(layout.CURRENT)}


def argv(*verb: str) -> list[str]:
    return ["python3", "-m", "phone_agent", *verb]


def call(connection: PhoneConnection, *verb: str, timeout: float = 60.0) -> Any:
    """The verb's answer. Raises PhoneError with what the agent complained about."""
    result = connection.run(argv(*verb), env=ENVIRONMENT, timeout=timeout, check=True)
    try:
        return json.loads(result.stdout)
    except (ValueError, RecursionError):
        raise PhoneError(f"phone_agent {verb[0]} did not answer with JSON", remedy="clusterctl provision") from None
