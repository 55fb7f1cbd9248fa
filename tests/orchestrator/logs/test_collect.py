"""Collecting logs from phones that are not trusted. Stubs stand in for their streams."""

from __future__ import annotations

import base64
import errno
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.inventory.model import Phone
from orchestrator.logs import collect
from orchestrator.logs.collect import CollectedLogs, collect_logs
from orchestrator.logs.unpack import Limits
from orchestrator.view.logs import as_document
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.launch.samples import event, phones
from tests.orchestrator.logs.tars import END, member

RUN = "20260131-120000-lenet-00aa"
VALID = member(b"rank.jsonl", event("start", 1769860800.0)) + member(b"run.json", b"{}") + END


class Sent:
    """A stream as the fleet opens it: lines, then an exit code."""

    def __init__(self, lines: Iterator[bytes], rc: int) -> None:
        self._lines, self.rc = lines, rc

    def __iter__(self) -> Iterator[bytes]:
        return self._lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Phones:
    """What each phone sends; None: the phone is off."""

    def __init__(self, *sends: bytes | Callable[[], Iterator[bytes]] | None, rc: int = 0) -> None:
        self.phones = phones(len(sends))
        self._sends = dict(zip(self.phones, sends, strict=True))
        self._rc = rc

    def map(self, task: Callable[[Any], Any], on_done: Any = None) -> Outcomes[Any]:
        return Outcomes(tuple(self._outcome(phone, task) for phone in self.phones))

    def _outcome(self, phone: Phone, task: Callable[[Any], Any]) -> Outcome[Any]:
        sends = self._sends[phone]
        if sends is None:
            return Outcome(phone, Status.UNREACHABLE, 5.0, phase=Phase.TCP, error="no answer within 5 s")
        lines = base64_lines(sends) if isinstance(sends, bytes) else sends()
        connection = SimpleNamespace(phone=phone, open_stream=lambda *_, **__: Sent(lines, self._rc))
        try:
            return Outcome(phone, Status.OK, 0.1, task(connection))
        except PhoneError as error:
            return Outcome(phone, Status.FAILED, 0.1, phase=Phase.EXEC, error=error.message)


def base64_lines(raw: bytes) -> Iterator[bytes]:
    return (base64.b64encode(raw[start : start + 300]) for start in range(0, len(raw), 300))


def collected(out: Path, *sends: Any, rc: int = 0, **options: Any) -> CollectedLogs:
    fleet: Any = Phones(*sends, rc=rc)
    return collect_logs(fleet, RUN, out, **options)


def test_files_are_stored_by_phone_with_a_merged_log_and_an_archive(tmp_path: Path) -> None:
    result = collected(tmp_path, VALID, VALID, archive=True)
    assert result.complete
    assert sorted(path.name for path in (tmp_path / RUN).iterdir()) == [
        "merged.jsonl",
        "merged.log",
        "p1-01",
        "p1-02",
    ]
    assert result.merged_lines == 2
    assert result.archive is not None
    with tarfile.open(result.archive) as tar:
        assert f"{RUN}/p1-02/run.json" in tar.getnames()
    assert json.loads(json.dumps(as_document(RUN, result)))["phones"][1]["files"]["run.json"] == 2


def test_a_missing_phone_makes_the_collection_incomplete_and_keeps_the_others(tmp_path: Path) -> None:
    result = collected(tmp_path, VALID, None)
    assert not result.complete
    assert [outcome.ok for outcome in result.outcomes] == [True, False]
    assert (tmp_path / RUN / "p1-01" / "run.json").is_file()


def test_collecting_again_replaces_all_but_the_logs_of_a_dead_phone(tmp_path: Path) -> None:
    collected(tmp_path, member(b"old.log") + END, VALID)
    result = collected(tmp_path, VALID, None)
    assert not (tmp_path / RUN / "p1-01" / "old.log").exists()
    assert (tmp_path / RUN / "p1-02" / "run.json").is_file()
    assert [phone.name for phone in result.from_earlier] == ["p1-02"]
    assert {path.name for path in tmp_path.iterdir()} == {RUN}


def test_a_phone_without_the_run_is_reported(tmp_path: Path) -> None:
    result = collected(tmp_path, b"", rc=3)
    assert result.outcomes.failures[0].error == f"has no files of {RUN}"


def test_a_hostile_phone_cannot_write_elsewhere(tmp_path: Path) -> None:
    evil = member(b"../../escaped") + member(b"/etc/x") + member(b"link.log", kind=b"2", link=b"/etc/passwd") + VALID
    result = collected(tmp_path / "logs", evil)
    assert not result.complete
    assert sorted(path.name for path in (tmp_path / "logs" / RUN / "p1-01").iterdir()) == ["rank.jsonl", "run.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def connection_lost() -> Iterator[bytes]:
    yield from base64_lines(VALID[:1024])
    raise PhoneError("connection lost", code=ErrorCode.CONNECTION_LOST)


def garbage() -> Iterator[bytes]:
    yield from base64_lines(VALID[:1024])
    yield b"\xff\x1b[2J not base64"


@pytest.mark.parametrize(("sends", "note"), [(connection_lost, "connection lost"), (garbage, "not base64")])
def test_what_arrived_before_an_error_is_kept(tmp_path: Path, sends: Callable[[], Iterator[bytes]], note: str) -> None:
    result = collected(tmp_path, sends)
    (outcome,) = result.outcomes
    assert outcome.value is not None
    assert any(note in each for each in outcome.value.notes)
    assert (tmp_path / RUN / "p1-01" / "rank.jsonl").is_file()


def endless() -> Iterator[bytes]:
    while True:
        yield from base64_lines(member(b"rank.log", b"x" * 3000))


def test_an_endless_stream_is_cut_off(tmp_path: Path) -> None:
    result = collected(tmp_path, endless, limits=Limits(total_bytes=1 << 16))
    (outcome,) = result.outcomes
    assert outcome.value is not None
    assert "sends too much" in outcome.value.notes[-1]


def test_what_has_arrived_survives_an_interruption_and_a_failed_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Phones):
        def map(self, task: Callable[[Any], Any], on_done: Any = None) -> Outcomes[Any]:
            super().map(task, on_done)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_logs(cast("Any", Interrupted(VALID, VALID)), RUN, tmp_path)
    assert sorted(path.name for path in (tmp_path / RUN).iterdir()) == ["p1-01", "p1-02"]

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(collect, "write_merged_log", full)
    with pytest.raises(OSError, match="No space"):
        collect_logs(cast("Any", Phones(VALID, None)), RUN, tmp_path)
    assert sorted(path.name for path in (tmp_path / RUN).iterdir()) == ["p1-01", "p1-02"]
