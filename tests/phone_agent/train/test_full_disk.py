"""A full disk costs words, not the training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phone_agent.job import lease
from phone_agent.train.events import EventLog

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="no device that is full")


def test_events_are_lost_and_told_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = tmp_path / "rank.jsonl"
    with EventLog(1, "p1-02", FULL, own) as events:
        events.write("step", step=1)
        line = events.write("error", message="what went wrong")
    assert json.loads(line)["message"] == "what went wrong", "it goes to mpirun's log as well"
    assert len(own.read_text().splitlines()) == 2
    assert capsys.readouterr().err == "phone_agent: No space left on device: events are being lost\n"


class Narrow:
    """Takes half of a line, as a disk does that fills up under it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, data: bytes) -> int:
        return self._path.write_bytes(data[: len(data) // 2])


def test_what_was_torn_spoils_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(0, "p1-01", path) as events:
        (lines,) = events._files
        whole, lines._file = lines._file, Narrow(path)  # type: ignore[assignment]
        events.write("step", step=1)
        lines._file = whole
        events.write("step", step=2)
        events.write("step", step=3)
    torn, second, third = path.read_bytes().splitlines()
    assert torn.startswith(b'{"event": "step"')
    assert not torn.endswith(b"}")
    assert [json.loads(line)["step"] for line in (second, third)] == [2, 3]


def test_a_lease_that_cannot_be_written_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dump", lambda _document, _file: FULL.write_bytes(b"{}"))
    assert lease.take(tmp_path, "me@here", lambda: 5.0) is None
    lease.require(tmp_path, "me@here")
