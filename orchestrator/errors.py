"""What can go wrong on the host, as one tree.

    ClusterctlError                 exit 1   something failed in the work itself
    ├── UsageError                  exit 2   bad flag, file or name; reported before anything is changed
    │   └── InventoryError          exit 2   carries every problem found, each with file and line
    └── PhoneError                  exit 1   one phone, one phase, one error code, one remedy

Every error ends with what to do next (`remedy`), as a sentence or as a command to paste.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.text import lines

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_MAX_MESSAGE = 100_000


class ClusterctlError(Exception):
    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        self.message = lines(message, _MAX_MESSAGE)  # it may quote a phone
        super().__init__(self.message)
        self.remedy = remedy


class UsageError(ClusterctlError):
    exit_code = EXIT_USAGE


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with a file a person wrote."""

    line: int  # 0: the file as a whole
    message: str


class InventoryError(UsageError):
    def __init__(self, source: Path, problems: list[Problem]) -> None:
        self.source = source
        self.problems = sorted(problems)
        listed = "\n".join(f"{source}{_at(problem)}: {problem.message}" for problem in self.problems)
        check = f"clusterctl inventory check -i {shlex.quote(str(source))}"
        super().__init__(listed, remedy=check if any(problem.line for problem in problems) else None)


def _at(problem: Problem) -> str:
    return f":{problem.line}" if problem.line else ""


class PhoneError(ClusterctlError):
    """A failure on one phone. `code` says what went wrong, `phase` how far the work got (see fleet.result.Phase)."""

    def __init__(self, message: str, *, code: ErrorCode, phase: str = "exec", remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code
        self.phase = phase


@contextmanager
def agent_errors(*failures: type[AgentError]) -> Iterator[None]:
    """Converts errors of the agent's code when it runs on this computer.

    An agent error means bad input (exit 2), except for `failures`, which mean that the work failed (exit 1).
    """
    try:
        yield
    except failures as error:
        raise ClusterctlError(str(error)) from None
    except AgentError as error:
        raise UsageError(str(error), remedy=getattr(error, "remedy", None)) from None
