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
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from orchestrator.records.events import as_number, parse_event
from orchestrator.text import one_line

MAX_LINE_BYTES = 1 << 16
_SOURCE = re.compile(r"(events|rank)(\.\d+)?\.jsonl|(rank|mpirun)(\.\d+)?\.log")  # of all attempts
_NEVER = 4102444800.0  # the year 2100: a later time is a wrong clock
_UTC = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](\d{3}) (.*)", re.DOTALL)
_HIDDEN_FIELDS = frozenset({"event", "time", "rank", "phone"})


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
    count = 0
    with ExitStack() as open_files:
        streams = [_entries(open_files, directory / phone, phone, where) for phone, where in ports.items()]
        lines = open_files.enter_context((directory / "merged.log").open("w", encoding="utf-8"))
        objects = open_files.enter_context((directory / "merged.jsonl").open("w", encoding="utf-8"))
        for entry in _fill_missing_times(heapq.merge(*streams, key=lambda entry: entry.time)):
            lines.write(entry.as_line() + "\n")
            objects.write(json.dumps(asdict(entry)) + "\n")
            count += 1
    return count


def _fill_missing_times(entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    last = 0.0
    for entry in entries:
        last = last if entry.time == _NEVER else entry.time
        yield replace(entry, time=last)


def _entries(open_files: ExitStack, directory: Path, phone: str, where: str) -> Iterator[LogEntry]:
    if not directory.is_dir():
        return iter(())
    paths = sorted(path for path in directory.iterdir() if _SOURCE.fullmatch(path.name) and path.is_file())
    files = [(path.name, open_files.enter_context(path.open("rb"))) for path in paths]
    return heapq.merge(*(_file_entries(file, name, phone, where) for name, file in files), key=lambda entry: entry.time)


def _file_entries(file: BinaryIO, source: str, phone: str, where: str) -> Iterator[LogEntry]:
    """In the order of the file: a clock that was set back must not reorder the lines of a phone."""
    latest = _first_time(file)
    for line in _lines(file):
        when, text = read_line(line)
        latest = latest if when is None else max(when, latest)
        yield LogEntry(latest, phone, where, source, text)


def _first_time(file: BinaryIO) -> float:
    first = next((when for line in _lines(file) if (when := read_line(line)[0]) is not None), _NEVER)
    file.seek(0)
    return first


def read_line(line: bytes) -> tuple[float | None, str]:
    """The time of a line, if it has one, and its text without control characters."""
    text = line.decode("utf-8", errors="replace").rstrip("\r\n")
    if event := parse_event(text):
        when = as_number(event.fields.get("time"))
        return _plausible(when), one_line(f"{event.kind} {_format_fields(event.fields)}".rstrip())
    if match := _UTC.fullmatch(text):
        return _parse_utc(match[1], match[2]), one_line(match[3])
    return None, one_line(text)


def _parse_utc(seconds: str, milliseconds: str) -> float | None:
    try:
        epoch = calendar.timegm(time.strptime(seconds, "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return None
    return _plausible(epoch + int(milliseconds) / 1000)


def _format_fields(fields: Mapping[str, object]) -> str:
    return " ".join(f"{key}={_format_value(value)}" for key, value in fields.items() if key not in _HIDDEN_FIELDS)


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _plausible(when: float | None) -> float | None:
    return when if when is not None and 0 < when < _NEVER else None


def _lines(file: BinaryIO) -> Iterable[bytes]:
    while line := file.readline(MAX_LINE_BYTES):
        yield line
