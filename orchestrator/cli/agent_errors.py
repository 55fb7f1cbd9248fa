"""Errors of the agent's code when it runs on this computer, as errors of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import ClusterctlError, UsageError
from phone_agent.contract.errors import AgentError


@contextmanager
def agent_errors(*failures: type[AgentError]) -> Iterator[None]:
    """An agent error means bad input (exit 2), except for `failures`, which mean that the work failed (exit 1)."""
    try:
        yield
    except failures as error:
        raise ClusterctlError(str(error)) from None
    except AgentError as error:
        raise UsageError(str(error), remedy=getattr(error, "remedy", None)) from None
