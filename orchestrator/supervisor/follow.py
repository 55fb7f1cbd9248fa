"""Follow a run from the head phone, through broken connections, and keep a copy of what it says.

The copy on this computer is byte for byte the beginning of the head phone's events file. Its size is therefore where
to go on, after a lost connection as after a closed laptop.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.events import FOLLOWER_EVENTS, Event, parse_event
from orchestrator.supervisor.identity import holder
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

PATIENCE_S = 120.0  # how long the head phone may stay away before this computer gives up looking
SILENCE_S = 3.0  # the agent sends a heartbeat every half second
_PAUSES_S = (1.0, 2.0, 5.0)
_LARGEST_COPY = 1 << 30

OnBreak = Callable[[PhoneError], None]


class LostHeadError(ClusterctlError):
    """The head phone stopped answering; the run may well go on without us."""


class NotFollowedError(ClusterctlError):
    """The agent itself refuses; asking again would not help."""

    def __init__(self, message: str, *, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


class EventsCopy:
    """The local copy. Only one process writes to it; another that follows the same run just reads and remembers."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        self._writes = _locked(self._file)
        self.size = 0

    def replay(self) -> Iterator[bytes]:
        """Whole lines only: a torn last line is dropped and asked for again."""
        self._file.seek(0)
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            self.size += len(line)
            yield line
        if self._writes:
            self._file.truncate(self.size)

    def append(self, line: bytes) -> None:
        self.size += len(line)
        if self._writes and self.size <= _LARGEST_COPY:
            self._file.write(line)
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()


def follow(
    run_id: str, copy: Path, connect: Callable[[], PhoneConnection], on_break: OnBreak, attempt: int = 0
) -> Iterator[Event]:
    """All events of an attempt from the first, then new ones as they happen; the last one is `end`.

    `on_break` may raise: whoever knows better need not wait for the head phone to come back.
    """
    with EventsCopy(copy) as events:
        yield from filter(None, map(parse_event, events.replay()))
        patience = _Patience(on_break)
        while True:
            try:
                for event in _from_phone(run_id, attempt, events, connect):
                    patience.restore()
                    yield event
                    if event.kind == "end":
                        return
            except PhoneError as error:
                patience.spend(error)


def _from_phone(
    run_id: str, attempt: int, events: EventsCopy, connect: Callable[[], PhoneConnection]
) -> Iterator[Event]:
    where = ("--attempt", str(attempt), "--offset", str(events.size))
    verb = agent.argv("follow", run_id, *where, "--holder", holder())
    with connect().open_stream(verb, env=agent.ENVIRONMENT, silence=SILENCE_S) as stream:
        for line in stream:
            event = parse_event(line)
            if event is None or event.kind not in FOLLOWER_EVENTS:
                events.append(line + b"\n")
            if event is not None:
                yield event
    if stream.rc:
        code, said = agent.reported(stream.stderr, stream.rc)
        raise NotFollowedError(said, code=code)
    raise PhoneError("the stream ended before the run did", code=ErrorCode.CONNECTION_LOST)


class _Patience:
    """How long to go on after a broken stream."""

    def __init__(self, on_break: OnBreak) -> None:
        self._on_break = on_break
        self.restore()

    def restore(self) -> None:
        self._since, self._tries = time.monotonic(), 0

    def spend(self, error: PhoneError) -> None:
        if self._tries and time.monotonic() - self._since > PATIENCE_S:
            message = f"the head phone does not answer: {error.message}; the run may go on without us"
            raise LostHeadError(message, remedy="clusterctl attach") from error
        self._on_break(error)
        time.sleep(_PAUSES_S[min(self._tries, len(_PAUSES_S) - 1)])
        self._since = self._since if self._tries else time.monotonic()
        self._tries += 1


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
