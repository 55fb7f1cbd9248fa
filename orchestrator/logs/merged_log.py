"""The logs of all phones of a run merged into one, sorted by time.

Every line names its phone and switch port. A line without a time of its own (a traceback, messages of mpirun) keeps the
time of the line before it; a file without any time comes last.
"""

from __future__ import annotations

import calendar
import heapq
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from orchestrator.records.events import LAST_TIME
from orchestrator.text import one_line
from phone_agent.contract.decode import DecodeError, Or, Range, decode, parse_json

MAX_LINE_BYTES = 1 << 16
MERGE_BYTES, MIN_BLOCK, MAX_BLOCK = 64 << 20, 1 << 12, 1 << 18  # memory for reading, in all and per file
_SOURCE = re.compile(r"(events|rank)(\.\d+)?\.jsonl|(rank|mpirun)(\.\d+)?\.log")  # of all attempts
_UTC = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](\d{3}) (.*)", re.DOTALL)
_HIDDEN_FIELDS = frozenset({"event", "time", "rank", "phone"})


@dataclass(frozen=True)
class _Time:
    time: Annotated[float | None, Range(1e-3, LAST_TIME - 1), Or(None)] = None


@dataclass(frozen=True)
class LogEntry:
    time: float
    phone: str
    where: str
    source: str
    text: str

    def as_line(self) -> str:
        return f"{format_time(self.time)}  {self.phone:<8} {self.where:<7} {self.source:<12} {self.text}"


def format_time(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(epoch)) + f".{int(epoch % 1 * 1000):03d}"


def write_merged_log(directory: Path, ports: Mapping[str, str]) -> int:
    """Merge `directory`/<phone>/* into merged.jsonl and merged.log there. Returns the number of lines."""
    sources = [(path, phone, where) for phone, where in ports.items() for path in _sources(directory / phone)]
    block = max(MIN_BLOCK, min(MAX_BLOCK, MERGE_BYTES // max(1, len(sources))))
    streams = [_entries(path, phone, where, block) for path, phone, where in sources]
    count = 0
    with (
        (directory / "merged.log").open("w", encoding="utf-8") as lines,
        (directory / "merged.jsonl").open("w", encoding="utf-8") as objects,
    ):
        for entry in _fill_missing_times(heapq.merge(*streams, key=lambda entry: entry.time)):
            lines.write(entry.as_line() + "\n")
            objects.write(json.dumps(asdict(entry)) + "\n")
            count += 1
    return count


def _fill_missing_times(entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    last = 0.0
    for entry in entries:
        last = last if entry.time == LAST_TIME else entry.time
        yield replace(entry, time=last)


def _sources(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if _SOURCE.fullmatch(path.name) and path.is_file())


def _entries(path: Path, phone: str, where: str, block: int) -> Iterator[LogEntry]:
    """In the order of the file: a clock that was set back must not reorder the lines of a phone."""
    latest = next((when for line in _lines(path, block) if (when := read_line(line)[0]) is not None), LAST_TIME)
    for line in _lines(path, block):
        when, text = read_line(line)
        latest = latest if when is None else max(when, latest)
        yield LogEntry(latest, phone, where, path.name, text)


def read_line(line: bytes) -> tuple[float | None, str]:
    """The time of a line, if it has one, and its text without control characters."""
    text = line.decode("utf-8", errors="replace").rstrip("\r\n")
    if event := _parse_event(text):
        return decode(_Time, event).time, one_line(f"{event['event']} {_format_fields(event)}".rstrip())
    if match := _UTC.fullmatch(text):
        return _parse_utc(match[1], match[2]), one_line(match[3])
    return None, one_line(text)


def _parse_event(text: str) -> dict[str, object] | None:
    """Any event with all its fields: a log shows what a phone has written, plausible or not."""
    try:
        event = parse_json(text, MAX_LINE_BYTES)
    except DecodeError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _parse_utc(seconds: str, milliseconds: str) -> float | None:
    try:
        epoch = calendar.timegm(time.strptime(seconds, "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return None
    return decode(_Time, {"time": epoch + int(milliseconds) / 1000}).time


def _format_fields(fields: Mapping[str, object]) -> str:
    return " ".join(f"{key}={_format_value(value)}" for key, value in fields.items() if key not in _HIDDEN_FIELDS)


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _lines(path: Path, block: int) -> Iterator[bytes]:
    """Lines, or pieces of longer ones. The file is open only while a block is read: all files of all phones are merged
    at once, and there may be more of them than a process may have open."""
    offset, rest = 0, b""
    while chunk := _read_block(path, offset, block):
        offset += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield from _pieces(line)
        if len(rest) > MAX_LINE_BYTES:
            yield rest[:MAX_LINE_BYTES]
            rest = rest[MAX_LINE_BYTES:]
    if rest:
        yield from _pieces(rest)


def _read_block(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _pieces(line: bytes) -> Iterable[bytes]:
    return (line[start : start + MAX_LINE_BYTES] for start in range(0, max(1, len(line)), MAX_LINE_BYTES))
