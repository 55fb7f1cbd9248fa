"""Following events across broken connections. A stub stands in for the phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from orchestrator.errors import PhoneError
from orchestrator.supervisor import follow as module
from orchestrator.supervisor.follow import FollowRefusedError, HeadUnreachableError, follow
from phone_agent.contract.errors import AgentError, ErrorCode, error_line
from tests.orchestrator.launch.samples import event

LINES = [event("start", 1.0), event("step", 2.0, step=1), event("step", 3.0, step=2), event("done", 4.0)]
FILE = b"".join(LINES)
END = event("end", 5.0, state="done", rc=0)


class Head:
    """Serves FILE from the requested offset. Each connection breaks after the given number of lines."""

    def __init__(self, *breaks: int | None) -> None:
        self.breaks = list(breaks)
        self.offsets: list[int] = []

    def __call__(self) -> Any:
        return self

    def open_stream(self, argv: list[str], **_options: Any) -> Any:
        self.offsets.append(int(argv[argv.index("--offset") + 1]))
        return Served(self.serve(self.offsets[-1], self.breaks.pop(0) if self.breaks else None))

    def serve(self, offset: int, breaks: int | None) -> Iterator[bytes]:
        yield event("heartbeat", 9.0, offset=offset).rstrip(b"\n")
        for count, line in enumerate(FILE[offset:].splitlines()):
            if count == breaks:
                raise PhoneError("connection lost", code=ErrorCode.CONNECTION_LOST)
            yield line
        if breaks is not None:
            raise PhoneError("connection lost", code=ErrorCode.CONNECTION_LOST)
        yield END.rstrip(b"\n")


class Served:
    stderr = ""
    rc = 0

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        return self._lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    fake = SimpleNamespace(
        monotonic=lambda: clock.now, sleep=lambda seconds: setattr(clock, "now", clock.now + seconds)
    )
    monkeypatch.setattr(module, "time", fake)
    return clock


def followed(copy: Path, head: Head) -> list[str]:
    return [e.kind for e in follow("run", copy, head, lambda _why: None) if e.kind != "heartbeat"]


ALL = ["start", "step", "step", "done", "end"]


def test_events_are_copied_byte_for_byte(tmp_path: Path) -> None:
    assert followed(tmp_path / "events", Head()) == ALL
    assert (tmp_path / "events").read_bytes() == FILE


@pytest.mark.parametrize("breaks", [(0,), (1,), (2, 0, 1), (4,), (1, 1, 1, 1)])
def test_a_broken_stream_resumes_where_it_broke(tmp_path: Path, breaks: tuple[int, ...]) -> None:
    assert followed(tmp_path / "events", Head(*breaks)) == ALL
    assert (tmp_path / "events").read_bytes() == FILE


def test_following_again_replays_the_copy_and_requests_only_the_rest(tmp_path: Path) -> None:
    copy = tmp_path / "events"
    copy.write_bytes(LINES[0] + LINES[1] + b'{"event": "ste')  # this computer died while writing a line
    head = Head()
    assert followed(copy, head) == ALL
    assert head.offsets == [len(LINES[0] + LINES[1])]
    assert copy.read_bytes() == FILE


def test_two_followers_write_the_copy_once(tmp_path: Path) -> None:
    copy = tmp_path / "events"
    first = follow("run", copy, Head(), lambda _why: None)
    assert next(first).kind == "heartbeat"
    assert followed(copy, Head()) == ALL
    assert [e.kind for e in first] == ALL
    assert copy.read_bytes() == FILE


def test_a_refusal_of_the_agent_is_not_retried(tmp_path: Path) -> None:
    class Refuses(Head):
        def open_stream(self, argv: list[str], **_options: Any) -> Any:
            served = Served(iter(()))
            refusal = AgentError("run x was not started on this phone", code=ErrorCode.NOT_STARTED)
            served.rc, served.stderr = 1, error_line(refusal) + "\n"
            return served

    with pytest.raises(FollowRefusedError, match="run x was not started on this phone") as refused:
        list(follow("x", tmp_path / "events", Refuses(), lambda _why: None))
    assert refused.value.code is ErrorCode.NOT_STARTED


def test_a_follower_that_android_killed_is_started_again(tmp_path: Path) -> None:
    class KilledOnce(Head):
        def open_stream(self, argv: list[str], **options: Any) -> Any:
            served = super().open_stream(argv, **options)
            if len(self.offsets) == 1:
                served = Served(iter(()))
                served.rc = 137
            return served

    assert followed(tmp_path / "events", KilledOnce()) == ALL


def test_an_unreachable_head_phone_is_given_up_after_retries(tmp_path: Path) -> None:
    class Gone:
        def __call__(self) -> Any:
            raise PhoneError("no route to host", code=ErrorCode.NO_ROUTE)

    disconnects: list[PhoneError] = []
    with pytest.raises(HeadUnreachableError, match="no route to host"):
        list(follow("run", tmp_path / "events", Gone(), disconnects.append))
    assert len(disconnects) > 3
