"""What the engine says when it runs on this computer, as errors of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import ClusterctlError, UsageError
from phone_agent.contract.errors import AgentError


@contextmanager
def engine_errors(*failures: type[AgentError]) -> Iterator[None]:
    """The engine's own words. What was asked for cannot be (exit 2); unless it is one of `failures` (exit 1)."""
    try:
        yield
    except failures as error:
        raise ClusterctlError(str(error)) from None
    except AgentError as error:
        raise UsageError(str(error), remedy=getattr(error, "remedy", None)) from None
