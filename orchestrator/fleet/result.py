"""A phone's outcome is a value: an exception on one phone never ends the work on the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Phone

T = TypeVar("T")


class Phase(StrEnum):
    """How far it got: the first question when a phone does not answer."""

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
    remedy: str | None = None
    raised: PhoneError | None = field(default=None, compare=False, repr=False)  # what its class tells beyond its text

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


@dataclass(frozen=True)
class Outcomes(Generic[T]):
    """One outcome a phone, in ring order."""

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
