"""A phone that sends what a test wants, without a network: the real code of the host decodes it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from orchestrator.errors import PhoneError
from orchestrator.fleet import PhoneConnection
from orchestrator.fleet.fleet import _failure
from orchestrator.fleet.process import RemoteProcess
from orchestrator.fleet.result import CommandResult, Outcome, Outcomes, Status
from orchestrator.fleet.stream import Stream
from orchestrator.inventory.model import Phone

T = TypeVar("T")


class HostilePhone(PhoneConnection):
    """`replies`: outputs of commands, in turn; `streams`: of streamed commands."""

    def __init__(self, phone: Phone, replies: Sequence[bytes] = (b"",), streams: Sequence[bytes] = (b"",)) -> None:
        self.phone = phone
        self._replies, self._streams = list(replies), list(streams)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[bytes] | bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        check: bool = False,
    ) -> CommandResult:
        output = _next(self._replies).decode("utf-8", "replace")
        return CommandResult(tuple(argv), 0, output, "", 0.0)

    def open_stream(
        self,
        argv: Sequence[str],
        *,
        silence: float,
        timeout: float,
        env: Mapping[str, str] | None = None,
    ) -> Stream:
        return Stream(cast("RemoteProcess", _Process(_next(self._streams))), silence, timeout)


class HostileFleet:
    """All phones answer the same. Only PhoneError is caught: a phone must not be able to cause other errors."""

    def __init__(self, phones: Sequence[Phone], connect: Callable[[Phone], PhoneConnection]) -> None:
        self.phones, self.connection = tuple(phones), connect

    def map(self, task: Callable[[PhoneConnection], T], phones: Iterable[Phone] | None = None, **_: Any) -> Outcomes[T]:
        chosen = self.phones if phones is None else tuple(phones)
        return Outcomes(tuple(self._outcome(phone, task) for phone in chosen))

    def _outcome(self, phone: Phone, task: Callable[[PhoneConnection], T]) -> Outcome[T]:
        try:
            return Outcome(phone, Status.OK, 0.0, task(self.connection(phone)))
        except PhoneError as error:
            return _failure(phone, error, 0.0)


class _Process:
    def __init__(self, output: bytes) -> None:
        self._chunks = [output[start : start + 4096] for start in range(0, len(output), 4096)]

    def read(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        return (self._chunks.pop(0), b"") if self._chunks else None

    def exit_code(self, timeout: float | None) -> int:
        return 0

    def close(self) -> None:
        self._chunks = []


def as_base64(content: bytes) -> bytes:
    """As phones send files: lines of base64."""
    return b"\n".join(base64.b64encode(content[start : start + 6144]) for start in range(0, len(content), 6144))


def _next(outputs: list[bytes]) -> bytes:
    """Repeats the last one."""
    return outputs.pop(0) if len(outputs) > 1 else outputs[0]
