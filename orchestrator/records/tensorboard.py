"""A run's figures as an event file, for `tensorboard --logdir`: written as the run is followed.

A file is records of length, masked CRC-32C of the length, an Event message, masked CRC-32C of that. What is written
depends on the run's events alone; so whoever follows a run again goes on after the records that are already there.
https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto
"""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from orchestrator import protobuf as pb
from orchestrator.records.events import Event, as_number

DIRECTORY = "tensorboard"
FILE = "events.out.tfevents.clusterctl"  # TensorBoard looks for "tfevents" in a name
VERSION = "brain.Event:2"
TAGS = {
    "step": {
        "loss": "train/loss",
        "learning_rate": "train/learning_rate",
        "images_per_s": "speed/images_per_s",
        "step_s": "speed/step_s",
        "compute_s": "speed/compute_s",
        "comm_s": "speed/comm_s",
    },
    "evaluate": {"loss": "held-out/loss", "top1": "held-out/top1", "top5": "held-out/top5"},
}
HOTTEST = "phones/hottest_c"
MOST_STEPS = 1 << 62
_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_LARGEST_RECORD = 1 << 16
_CASTAGNOLI = 0x82F63B78


class TensorBoard:
    """Appends to the file in a run's directory; another one that is open at the same time writes nothing."""

    def __init__(self, run_directory: Path) -> None:
        path = run_directory / DIRECTORY / FILE
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("a+b")
        self._writes = _locked(self._file)
        self._there = _whole_records(self._file) if self._writes else 0

    def write(self, event: Event) -> None:
        for record in records(event):
            if self._there:
                self._there -= 1
            elif self._writes:
                self._file.write(framed(record))
                self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()


def records(event: Event) -> Iterator[bytes]:
    """Event messages; the file's version comes with the run's start."""
    if event.kind == "start":
        yield pb.double(1, event.time) + pb.text(3, VERSION)
    step = event.number("step")
    values = list(_values(event))
    if step is not None and 0 <= step < MOST_STEPS and values:
        summary = b"".join(pb.data(1, pb.text(1, tag) + pb.single(2, value)) for tag, value in values)
        yield pb.double(1, event.time) + pb.integer(2, int(step)) + pb.data(5, summary)


def _values(event: Event) -> Iterator[tuple[str, float]]:
    found = [(tag, event.number(name)) for name, tag in TAGS.get(event.kind, {}).items()]
    hottest = event.fields.get("hottest")
    if event.kind == "step" and isinstance(hottest, dict):
        found.append((HOTTEST, as_number(hottest.get("temperature_c"))))
    for tag, value in found:
        if value is not None and abs(value) < 1e38:  # what a float32 holds
            yield tag, value


def framed(record: bytes) -> bytes:
    length = _LENGTH.pack(len(record))
    return length + _CRC.pack(masked_crc(length)) + record + _CRC.pack(masked_crc(record))


def masked_crc(content: bytes) -> int:
    """Turned and shifted, so that the CRC of data that holds CRCs stays a good one."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(content: Iterable[int]) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_CASTAGNOLI if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_entry, range(256)))


def _whole_records(file: BinaryIO) -> int:
    """How many there are; what is torn after them is cut off."""
    file.seek(0)
    count = end = 0
    while (record := _next_record(file)) is not None:
        count, end = count + 1, end + len(record)
    file.truncate(end)
    return count


def _next_record(file: BinaryIO) -> bytes | None:
    head = file.read(_LENGTH.size + _CRC.size)
    if len(head) < _LENGTH.size + _CRC.size:
        return None
    (length,) = _LENGTH.unpack_from(head)
    rest = file.read(length + _CRC.size) if length <= _LARGEST_RECORD else b""
    record = head + rest
    return record if record == framed(rest[: -_CRC.size]) else None


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
