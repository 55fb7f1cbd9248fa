"""On a full disk events are lost, but training continues."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phone_agent.job import lease
from phone_agent.train.events import EventLog

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="/dev/full does not exist")


def test_lost_events_are_reported_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = tmp_path / "rank.jsonl"
    with EventLog(1, "p1-02", FULL, own) as events:
        events.write("step", step=1)
        line = events.write("error", message="what went wrong")
    assert json.loads(line)["message"] == "what went wrong", "the caller writes it to mpirun's log"
    assert len(own.read_text().splitlines()) == 2
    assert capsys.readouterr().err == "phone_agent: No space left on device: events are being lost\n"


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond it are cut off, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_partial_line_does_not_damage_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(0, "p1-01", path) as events:
        with file_size_limit(40):
            events.write("step", step=1)
        events.write("step", step=2)
        events.write("step", step=3)
    torn, second, third = path.read_bytes().splitlines()
    assert len(torn) == 40
    assert [json.loads(line)["step"] for line in (second, third)] == [2, 3]


def test_lease_that_cannot_be_written_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dump", lambda _document, _file: FULL.write_bytes(b"{}"))
    assert lease.take(tmp_path, "me@here", lambda: 5.0) is None
    lease.require(tmp_path, "me@here")
