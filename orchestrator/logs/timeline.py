"""All phones' logs of a run as one story, sorted by time.

Every line names its phone and switch port. A line without a time of its own (a traceback, mpirun's complaints)
stands where the line before it stands; a file without any time stands at the end.
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

LONGEST_LINE = 1 << 16
_SOURCE = re.compile(r"(events|rank)(\.\d+)?\.jsonl|(rank|mpirun)(\.\d+)?\.log")  # of all attempts
_NEVER = 4102444800.0  # the year 2100: a phone that claims a later one has no clock worth sorting by
_UTC = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](\d{3}) (.*)", re.DOTALL)
_NOT_SHOWN = frozenset({"event", "time", "rank", "phone"})


@dataclass(frozen=True)
class Entry:
    time: float
    phone: str
    where: str
    source: str
    text: str

    def as_line(self) -> str:
        return f"{stamp(self.time)}  {self.phone:<8} {self.where:<7} {self.source:<12} {self.text}"


def stamp(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(epoch)) + f".{int(epoch % 1 * 1000):03d}"


def write_timeline(directory: Path, ports: Mapping[str, str]) -> int:
    """Merges `directory`/<phone>/* into timeline.jsonl and timeline.log there; returns the number of lines."""
    count = 0
    with ExitStack() as open_files:
        streams = [_entries(open_files, directory / phone, phone, where) for phone, where in ports.items()]
        lines = open_files.enter_context((directory / "timeline.log").open("w", encoding="utf-8"))
        objects = open_files.enter_context((directory / "timeline.jsonl").open("w", encoding="utf-8"))
        for entry in _at_known_times(heapq.merge(*streams, key=lambda entry: entry.time)):
            lines.write(entry.as_line() + "\n")
            objects.write(json.dumps(asdict(entry)) + "\n")
            count += 1
    return count


def _at_known_times(entries: Iterable[Entry]) -> Iterator[Entry]:
    last = 0.0
    for entry in entries:
        last = last if entry.time == _NEVER else entry.time
        yield replace(entry, time=last)


def _entries(open_files: ExitStack, directory: Path, phone: str, where: str) -> Iterator[Entry]:
    if not directory.is_dir():
        return iter(())
    paths = sorted(path for path in directory.iterdir() if _SOURCE.fullmatch(path.name) and path.is_file())
    files = [(path.name, open_files.enter_context(path.open("rb"))) for path in paths]
    return heapq.merge(*(_file_entries(file, name, phone, where) for name, file in files), key=lambda entry: entry.time)


def _file_entries(file: BinaryIO, source: str, phone: str, where: str) -> Iterator[Entry]:
    """In the file's own order: a clock that was set back must not tear a phone's story apart."""
    latest = _first_time(file)
    for line in _lines(file):
        when, text = read_line(line)
        latest = latest if when is None else max(when, latest)
        yield Entry(latest, phone, where, source, text)


def _first_time(file: BinaryIO) -> float:
    first = next((when for line in _lines(file) if (when := read_line(line)[0]) is not None), _NEVER)
    file.seek(0)
    return first


def read_line(line: bytes) -> tuple[float | None, str]:
    """The time a line carries, if any, and its text, made harmless."""
    text = line.decode("utf-8", errors="replace").rstrip("\r\n")
    if event := parse_event(text):
        when = as_number(event.fields.get("time"))
        return _plausible(when), one_line(f"{event.kind} {_fields(event.fields)}".rstrip())
    if match := _UTC.fullmatch(text):
        return _utc(match[1], match[2]), one_line(match[3])
    return None, one_line(text)


def _utc(whole: str, thousandths: str) -> float | None:
    try:
        seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return None
    return _plausible(seconds + int(thousandths) / 1000)


def _fields(fields: Mapping[str, object]) -> str:
    return " ".join(f"{key}={_value(value)}" for key, value in fields.items() if key not in _NOT_SHOWN)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _plausible(when: float | None) -> float | None:
    return when if when is not None and 0 < when < _NEVER else None


def _lines(file: BinaryIO) -> Iterable[bytes]:
    while line := file.readline(LONGEST_LINE):
        yield line
