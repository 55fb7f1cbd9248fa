"""Follow the events of a run from its head phone, across broken connections, and keep a copy of them.

The copy on this computer is a byte-for-byte prefix of the events file on the head phone. Its size is therefore the
offset to resume from, after a lost connection as well as after this computer was off.
"""

from __future__ import annotations

import fcntl
import math
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.events import FOLLOWER_EVENTS, Event, parse_event
from orchestrator.supervisor.identity import host_identity
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

RETRY_S = 120.0  # how long the head phone may be unreachable before this computer gives up
SILENCE_S = 3.0  # the agent sends a heartbeat every half second
INVALID_EVENTS_S = 10.0  # without a valid event, although lines arrive
_RETRY_DELAYS_S = (1.0, 2.0, 5.0)
_MAX_COPY_BYTES = 1 << 30
_REFUSALS = frozenset({ErrorCode.NO_SUCH_RUN, ErrorCode.NOT_STARTED, ErrorCode.LEASE_HELD})

OnDisconnect = Callable[[PhoneError], None]


class HeadUnreachableError(ClusterctlError):
    """The head phone stopped answering. The run may be continuing."""


class FollowRefusedError(ClusterctlError):
    """The agent itself refuses. A retry would not help."""

    def __init__(self, message: str, *, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


class EventsCopy:
    """The local copy. Only one process writes to it; others that follow the same run only read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        self._writes = _locked(self._file)
        self.size = 0

    def replay(self) -> Iterator[bytes]:
        """Complete lines only: a torn last line is dropped and requested again."""
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
        if self._writes and self.size <= _MAX_COPY_BYTES:
            self._file.write(line)
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()


def follow(
    run_id: str, copy: Path, connect: Callable[[], PhoneConnection], on_disconnect: OnDisconnect, attempt: int = 0
) -> Generator[Event]:
    """All events of an attempt from the first on, then new ones as they happen. The last one is `end`.

    `on_disconnect` may raise in order to stop following.
    """
    with EventsCopy(copy) as events:
        yield from filter(None, map(parse_event, events.replay()))
        retries = _Retries(on_disconnect)
        while True:
            try:
                for event in _stream_events(run_id, attempt, events, connect):
                    retries.reset()
                    yield event
                    if event.kind == "end":
                        return
            except PhoneError as error:
                retries.wait_after(error)


def _stream_events(
    run_id: str, attempt: int, events: EventsCopy, connect: Callable[[], PhoneConnection]
) -> Iterator[Event]:
    position = ("--attempt", str(attempt), "--offset", str(events.size))
    command = agent.argv("follow", run_id, *position, "--holder", host_identity())
    with connect().open_stream(command, env=agent.ENVIRONMENT, silence=SILENCE_S, timeout=math.inf) as stream:
        heard_at = time.monotonic()
        for line in stream:
            event = parse_event(line)
            if event is None or event.kind not in FOLLOWER_EVENTS:
                events.append(line + b"\n")
            if event is not None:
                yield event
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > INVALID_EVENTS_S:
                raise PhoneError(f"no valid event for {INVALID_EVENTS_S:g} s", code=ErrorCode.BAD_ANSWER)
    if stream.rc:
        code, message = agent.reported(stream.stderr, stream.rc)
        if code in _REFUSALS:
            raise FollowRefusedError(message, code=code)
        raise PhoneError(f"the agent ended: {message}", code=code)  # Android may have killed it; the run continues
    raise PhoneError("the event stream ended before the run", code=ErrorCode.CONNECTION_LOST)


class _Retries:
    """Pauses before each retry after a broken stream, and gives up after RETRY_S."""

    def __init__(self, on_disconnect: OnDisconnect) -> None:
        self._on_disconnect = on_disconnect
        self.reset()

    def reset(self) -> None:
        self._since, self._tries = time.monotonic(), 0

    def wait_after(self, error: PhoneError) -> None:
        if self._tries and time.monotonic() - self._since > RETRY_S:
            message = f"the head phone does not answer: {error.message}; the run may be continuing"
            raise HeadUnreachableError(message, remedy="clusterctl attach") from error
        self._on_disconnect(error)
        time.sleep(_RETRY_DELAYS_S[min(self._tries, len(_RETRY_DELAYS_S) - 1)])
        self._since = self._since if self._tries else time.monotonic()
        self._tries += 1


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
