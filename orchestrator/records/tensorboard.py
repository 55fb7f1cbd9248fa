"""Metrics of a run as an event file for `tensorboard --logdir`, written while the run is followed.

A record of the file is a length, the masked CRC-32C of the length, an Event message, and the masked CRC-32C of that.
The content depends on the events of the run alone, so a process that follows a run again continues after the records
that are already there.
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
from orchestrator.records.events import EvaluateEvent, Event, StepEvent

DIRECTORY = "tensorboard"
FILE = "events.out.tfevents.clusterctl"  # TensorBoard searches for names with "tfevents"
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
_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_MAX_RECORD = 1 << 16
_CASTAGNOLI = 0x82F63B78


class TensorBoard:
    """Appends to the file in the directory of a run. Only one open instance writes."""

    def __init__(self, run_directory: Path) -> None:
        path = run_directory / DIRECTORY / FILE
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("a+b")
        self._writes = _locked(self._file)
        # Records that are in the file already are not written again
        self._skip = _count_records(self._file) if self._writes else 0

    def write(self, event: Event) -> None:
        for record in records(event):
            if self._skip:
                self._skip -= 1
            elif self._writes:
                self._file.write(frame(record))
                self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def records(event: Event) -> Iterator[bytes]:
    """The Event messages of one event. The start of the run also writes the file version."""
    if event.kind == "start":
        yield pb.double(1, event.time) + pb.text(3, VERSION)
    if isinstance(event, StepEvent | EvaluateEvent) and (values := list(_values(event))):
        summary = b"".join(pb.data(1, pb.text(1, tag) + pb.single(2, value)) for tag, value in values)
        yield pb.double(1, event.time) + pb.integer(2, event.step) + pb.data(5, summary)


def _values(event: StepEvent | EvaluateEvent) -> Iterator[tuple[str, float]]:
    for name, tag in TAGS[event.kind].items():
        if (value := getattr(event, name)) is not None:
            yield tag, value
    if isinstance(event, StepEvent) and event.hottest is not None:
        yield HOTTEST, event.hottest.temperature_c


def frame(record: bytes) -> bytes:
    length = _LENGTH.pack(len(record))
    return length + _CRC.pack(masked_crc(length)) + record + _CRC.pack(masked_crc(record))


def masked_crc(content: bytes) -> int:
    """Rotated and offset, as TensorFlow does: a CRC of data that contains CRCs would be weak."""
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


def _count_records(file: BinaryIO) -> int:
    """Count the complete records, and cut off a torn one after them."""
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
    rest = file.read(length + _CRC.size) if length <= _MAX_RECORD else b""
    record = head + rest
    return record if record == frame(rest[: -_CRC.size]) else None


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
