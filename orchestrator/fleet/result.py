"""Outcomes per phone, as values: an exception on one phone never ends the work on the others."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import last_lines, one_line

T = TypeVar("T")
_NO_SPACE = os.strerror(errno.ENOSPC)  # as every program prints it
NO_EXIT_CODE = -1  # killed by a signal, or not started at all


class Phase(StrEnum):
    """How far the work got before it failed."""

    TCP = "tcp"
    BANNER = "banner"
    KEX = "kex"
    HOSTKEY = "hostkey"
    AUTH = "auth"
    EXEC = "exec"
    COPY = "copy"
    CANCELLED = "cancelled"


class Status(StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class CommandResult:
    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.rc == 0


@dataclass(frozen=True)
class Outcome(Generic[T]):
    phone: Phone
    status: Status
    seconds: float
    value: T | None = None
    phase: Phase | None = None
    error: str | None = None
    code: ErrorCode | None = None  # of the error
    remedy: str | None = None
    raised: PhoneError | None = field(default=None, compare=False, repr=False)  # for its class

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


@dataclass(frozen=True)
class Outcomes(Generic[T]):
    """One outcome per phone, in ring order."""

    items: tuple[Outcome[T], ...]

    def __iter__(self) -> Iterator[Outcome[T]]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def ok(self) -> bool:
        return all(item.ok for item in self.items)

    @property
    def failures(self) -> tuple[Outcome[T], ...]:
        return tuple(item for item in self.items if not item.ok)

    def values(self) -> Iterable[tuple[Phone, T]]:
        for item in self.items:
            if item.ok and item.value is not None:
                yield item.phone, item.value


def command_error(result: CommandResult) -> PhoneError:
    """The exception for a command that failed."""
    return PhoneError(describe_failure(result), code=exit_error_code(result.rc, result.stderr), phase=Phase.EXEC)


def exit_error_code(rc: int | None, stderr: str = "") -> ErrorCode:
    """The code of a command that failed, by its exit code and its error output."""
    if _NO_SPACE in stderr:
        return ErrorCode.DISK_FULL
    return ErrorCode.KILLED if rc == NO_EXIT_CODE else ErrorCode.COMMAND_FAILED


def describe_failure(result: CommandResult) -> str:
    """`apt-get: exit code 100: …`, or the reason why there is no exit code."""
    how = "killed or not started" if result.rc == NO_EXIT_CODE else f"exit code {result.rc}"
    output = last_lines(result.stderr) or last_lines(result.stdout)
    return f"{shorten(result.argv)}: {how}" + (f": {output}" if output else "")


def shorten(argv: Sequence[str]) -> str:
    line = one_line(" ".join(" ".join(argv).split()))
    return line if len(line) <= 80 else line[:79] + "…"
