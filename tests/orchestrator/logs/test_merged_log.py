from __future__ import annotations

import json
import resource
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.logs import merged_log
from orchestrator.logs.merged_log import read_line, write_merged_log
from tests.orchestrator.launch.samples import event

PORTS = {"p1-01": "sw1:1", "p1-02": "sw1:2"}


def write(directory: Path, phone: str, name: str, content: bytes) -> None:
    (directory / phone).mkdir(exist_ok=True)
    (directory / phone / name).write_bytes(content)


def merge(directory: Path) -> list[tuple[str, str]]:
    write_merged_log(directory, PORTS)
    entries = [json.loads(line) for line in (directory / "merged.jsonl").read_text().splitlines()]
    assert len((directory / "merged.log").read_text().splitlines()) == len(entries)
    return [(entry["phone"], entry["text"]) for entry in entries]


def test_lines_of_all_phones_are_sorted_by_time_with_their_ports(tmp_path: Path) -> None:
    write(
        tmp_path, "p1-01", "events.jsonl", event("start", 1769860800.0, world=2) + event("step", 1769860803.5, step=1)
    )
    write(tmp_path, "p1-02", "rank.jsonl", event("step", 1769860802.0, loss=2.302585))
    assert merge(tmp_path) == [("p1-01", "start world=2"), ("p1-02", "step loss=2.3026"), ("p1-01", "step step=1")]
    first = (tmp_path / "merged.log").read_text().splitlines()[0]
    assert first.split() == ["2026-01-31", "12:00:00.000", "p1-01", "sw1:1", "events.jsonl", "start", "world=2"]


def test_a_traceback_stays_with_the_line_before_it(tmp_path: Path) -> None:
    lines = (b"2026-01-31 12:00:00,500 reading shard", b"Traceback", b"  File x", b"2026-01-31 12:00:09,000 gone", b"")
    write(tmp_path, "p1-01", "rank.log", b"\n".join(lines))
    write(tmp_path, "p1-02", "rank.jsonl", event("warning", 1769860805.0, message="hot"))
    assert [text for _, text in merge(tmp_path)] == [
        "reading shard",
        "Traceback",
        "  File x",
        "warning message=hot",
        "gone",
    ]


def test_a_file_without_times_comes_last(tmp_path: Path) -> None:
    write(tmp_path, "p1-01", "mpirun.log", b"ORTE has lost communication\n")
    write(tmp_path, "p1-02", "rank.jsonl", event("error", 1769860805.0, message="x"))
    assert merge(tmp_path)[-1] == ("p1-01", "ORTE has lost communication")
    assert "2026-01-31 12:00:05" in (tmp_path / "merged.log").read_text().splitlines()[-1]


def test_a_clock_that_was_set_back_does_not_reorder_lines(tmp_path: Path) -> None:
    lines = [event("step", when, step=step) for step, when in enumerate([1769860805.0, 1769860800.0, 1769860806.0])]
    write(tmp_path, "p1-01", "rank.jsonl", b"".join(lines))
    assert [text for _, text in merge(tmp_path)] == ["step step=0", "step step=1", "step step=2"]


def test_escape_sequences_are_made_harmless(tmp_path: Path) -> None:
    write(tmp_path, "p1-01", "rank.log", b"2026-01-31 12:00:00,000 \x1b]0;owned\x07\x1b[2Jhello\r\xff\n")
    write(tmp_path, "p1-02", "rank.jsonl", event("warning", 1769860805.0, message="\x1b[31m\u202e"))
    write_merged_log(tmp_path, PORTS)
    shown = (tmp_path / "merged.log").read_text(encoding="utf-8")
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b]0;owned" in shown


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_any_line_can_be_read(line: bytes) -> None:
    when, text = read_line(line)
    assert when is None or 0 < when < 4102444800
    assert text.isprintable()


def test_implausible_times_are_ignored() -> None:
    assert read_line(event("step", 1e300))[0] is None
    assert read_line(b"2999-01-01 00:00:00,000 far")[0] is None
    assert read_line(b"2026-99-99 00:00:00,000 nowhere")[0] is None


def test_more_files_than_may_be_open_are_merged(tmp_path: Path) -> None:
    """138 phones with four attempts have over 1500 files."""
    names = [f"p1-{number:03}" for number in range(60)]
    for index, name in enumerate(names):
        (tmp_path / name).mkdir()
        for attempt in ("", ".1"):
            (tmp_path / name / f"rank{attempt}.jsonl").write_bytes(event("step", 1769860800.0 + index, step=index) * 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 20, hard))
    try:
        assert write_merged_log(tmp_path, dict.fromkeys(names, "sw1:1")) == 60 * 2 * 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    merged = (tmp_path / "merged.log").read_text().splitlines()
    assert merged == sorted(merged)


def test_lines_longer_than_a_block_are_read_whole(tmp_path: Path) -> None:
    (tmp_path / "rank.log").write_bytes(b"x" * 9000 + b"\n\n" + b"y" * 3 + b"\n" + b"z" * 150_000)
    lines = list(merged_log._lines(tmp_path / "rank.log", 4096))
    assert [len(line) for line in lines] == [9000, 0, 3, 1 << 16, 1 << 16, 150_000 - (2 << 16)]
