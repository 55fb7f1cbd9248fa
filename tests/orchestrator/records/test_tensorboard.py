"""Event files, read by TensorBoard itself."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records.events import Event, parse_event
from orchestrator.records.tensorboard import DIRECTORY, FILE, TAGS, TensorBoard, crc32c, frame, records
from phone_agent.train import progress
from phone_agent.train.rank_steps import RankStep, RankSteps
from tests.orchestrator.launch.samples import event
from tests.phone_agent.phones import run_spec

HOTTEST = {"phone": "p1-01", "temperature_c": 41.5}
RUN = [
    event("start", 100.0, world=4),
    event("step", 101.0, step=1, loss=2.5, images_per_s=640.0, step_s=0.5, learning_rate=0.1, hottest=HOTTEST),
    event("step", 102.0, step=2, loss=2.25, images_per_s=650.0),
    event("warning", 102.5, message="slow"),
    event("evaluate", 103.0, step=2, loss=2.0, top1=0.25, top5=0.75, samples=40),
    event("done", 104.0, steps=2, loss=2.25),
]


def parsed(lines: list[bytes]) -> list[Event]:
    return [each for each in map(parse_event, lines) if each is not None]


def write(directory: Path, lines: list[bytes]) -> None:
    with TensorBoard(directory) as figures:
        for each in parsed(lines):
            figures.write(each)


def read(directory: Path) -> list[tuple[str, int, float, float]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event as Message
    found = []
    for raw in RawEventFileLoader(str(directory / DIRECTORY / FILE)).Load():
        message: Any = Message.FromString(raw)
        if message.file_version:
            found.append((message.file_version, 0, 0.0, message.wall_time))
        found += [(each.tag, message.step, each.simple_value, message.wall_time) for each in message.summary.value]
    return found


EXPECTED = [
    ("brain.Event:2", 0, 0.0, 100.0),
    ("train/loss", 1, 2.5, 101.0),
    ("train/learning_rate", 1, pytest.approx(0.1), 101.0),
    ("speed/images_per_s", 1, 640.0, 101.0),
    ("speed/step_s", 1, 0.5, 101.0),
    ("phones/hottest_c", 1, 41.5, 101.0),
    ("train/loss", 2, 2.25, 102.0),
    ("speed/images_per_s", 2, 650.0, 102.0),
    ("held-out/loss", 2, 2.0, 103.0),
    ("held-out/top1", 2, 0.25, 103.0),
    ("held-out/top5", 2, 0.75, 103.0),
]


def test_every_metric_of_a_step_is_reported_by_ranks() -> None:
    merged = progress.merge_steps(RankSteps.of([RankStep(2.5, 0.4, 0.1)]), run_spec((4,)), 1, 0.5)
    assert TAGS["step"].keys() <= merged.keys()


def test_tensorboard_reads_all_metrics(tmp_path: Path) -> None:
    write(tmp_path, RUN)
    assert read(tmp_path) == EXPECTED


@pytest.mark.parametrize("seen", range(len(RUN) + 1))
def test_following_again_appends_only_new_records(tmp_path: Path, seen: int) -> None:
    write(tmp_path, RUN[:seen])
    write(tmp_path, RUN)
    write(tmp_path, RUN)
    assert read(tmp_path) == EXPECTED


def test_a_torn_record_is_written_again(tmp_path: Path) -> None:
    write(tmp_path, RUN)
    path = tmp_path / DIRECTORY / FILE
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        write(tmp_path, RUN)
        assert path.read_bytes() == whole
    path.write_bytes(whole[:60] + b"\xff" + whole[61:])
    write(tmp_path, RUN)
    assert path.read_bytes() == whole


def test_two_followers_of_one_run_write_it_once(tmp_path: Path) -> None:
    with TensorBoard(tmp_path) as first, TensorBoard(tmp_path) as second:
        for each in parsed(RUN):
            first.write(each)
            second.write(each)
    assert read(tmp_path) == EXPECTED


@pytest.mark.parametrize(
    "fields",
    [
        {"step": -1, "loss": 1.0},
        {"step": 10**30, "loss": 1.0},
        {"step": "1", "loss": 1.0},
        {"step": 1, "loss": "high"},
        {"step": 1, "hottest": 3},
        {"loss": 1.0},
    ],
)
def test_invalid_values_are_skipped(fields: dict[str, Any]) -> None:
    assert [record for each in parsed([event("step", 1.0, **fields)]) for record in records(each)] == []


def test_crc32c_matches_known_values() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # check value of the CRC catalogue
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


@given(record=st.binary(max_size=300))
def test_a_frame_has_the_length_in_its_header(record: bytes) -> None:
    framed = frame(record)
    assert len(framed) == len(record) + 16
    assert struct.unpack_from("<Q", framed) == (len(record),)
