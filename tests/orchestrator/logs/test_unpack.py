from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.logs.unpack import DEFAULT_LIMITS, Limits, UnpackResult, unpack
from tests.orchestrator.logs.tars import END, header, member

hostile_names = st.one_of(
    st.binary(max_size=100),
    st.sampled_from(
        [b"../up", b"/etc/passwd", b"a/../../b", b"..", b".", b"", b"-rf", b"a\nb", b"a\x1b[2J", b"./x/y", b"~"]
    ),
)


def sent(tmp_path: Path, *parts: bytes, limits: Limits = DEFAULT_LIMITS) -> UnpackResult:
    target = tmp_path / "phone"
    target.mkdir()
    return unpack([b"".join(parts)], target, limits)


def made(tmp_path: Path) -> set[str]:
    return {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}


def test_regular_files_arrive_with_their_content(tmp_path: Path) -> None:
    unpacked = sent(tmp_path, member(b"rank.log", b"hello"), member(b"./events.jsonl", b"{}\n" * 400), END)
    assert unpacked.files == {"rank.log": 5, "events.jsonl": 1200}
    assert unpacked.complete
    assert (tmp_path / "phone/rank.log").read_bytes() == b"hello"
    assert (tmp_path / "phone/events.jsonl").read_bytes() == b"{}\n" * 400


def test_archives_of_tarfile_are_read(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo("state.json")
        entry.size = 700
        archive.addfile(entry, io.BytesIO(b"s" * 700))
    assert sent(tmp_path, buffer.getvalue()).files == {"state.json": 700}


@pytest.mark.parametrize("kind", [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"L", b"K", b"x", b"g", b"S", b"Z"])
def test_only_regular_files_are_written(tmp_path: Path, kind: bytes) -> None:
    unpacked = sent(tmp_path, member(b"evil", b"x", kind, link=b"/etc/passwd"), member(b"good", b"y"), END)
    assert made(tmp_path) == {"phone/good"}
    assert len(unpacked.notes) == 1
    assert "evil" in unpacked.notes[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(names=st.lists(hostile_names, max_size=6))
def test_no_name_leads_outside_the_directory(tmp_path_factory: pytest.TempPathFactory, names: list[bytes]) -> None:
    outside = tmp_path_factory.mktemp("outside")
    unpacked = sent(outside, *(member(name, b"x") for name in names), END)
    assert made(outside) == {f"phone/{name}" for name in unpacked.files}
    assert all(Path(name).name == name and not name.startswith(".") for name in unpacked.files)
    assert len(unpacked.files) + len(unpacked.notes) >= len(set(names))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(noise=st.binary(max_size=3000), pieces=st.integers(min_value=1, max_value=700))
def test_random_data_never_raises(tmp_path_factory: pytest.TempPathFactory, noise: bytes, pieces: int) -> None:
    target = tmp_path_factory.mktemp("noise")
    chunks = [noise[start : start + pieces] for start in range(0, len(noise), pieces)]
    assert unpack(chunks, target).files == {}


def test_a_large_file_is_truncated_and_the_next_one_still_arrives(tmp_path: Path) -> None:
    big = member(b"rank.log", b"z" * 5000)
    unpacked = sent(tmp_path, big, member(b"run.json", b"{}"), END, limits=Limits(file_bytes=1000))
    assert unpacked.files == {"rank.log": 1000, "run.json": 2}
    assert unpacked.notes == ["rank.log is truncated: kept 1000 of 5000 bytes"]


def test_a_claimed_size_takes_no_memory_until_bytes_arrive(tmp_path: Path) -> None:
    unpacked = sent(tmp_path, header(b"rank.log", 8**11 - 1), b"only this")
    assert unpacked.files == {"rank.log": 9}
    assert unpacked.notes == ["the phone stopped sending before the end of the archive"]


def test_an_endless_stream_ends_at_the_size_limit(tmp_path: Path) -> None:
    unpacked = unpack(
        itertools.chain([header(b"rank.log", 8**11 - 1)], itertools.repeat(bytes(4096))),
        tmp_path,
        Limits(total_bytes=1 << 20, file_bytes=1 << 10),
    )
    assert unpacked.files == {"rank.log": 1 << 10}
    assert "sends too much" in unpacked.notes[-1]


def test_a_slow_stream_ends_at_the_time_limit(tmp_path: Path) -> None:
    def drip() -> Iterator[bytes]:
        yield header(b"rank.log", 1 << 20)
        while True:
            yield b"."

    assert "gave up after 0 s" in unpack(drip(), tmp_path, Limits(seconds=0.05)).notes[-1]


def test_empty_chunks_do_not_block_the_host(tmp_path: Path) -> None:
    assert "gave up" in unpack(itertools.repeat(b""), tmp_path, Limits(seconds=0.05)).notes[-1]


def test_the_number_of_files_is_limited(tmp_path: Path) -> None:
    unpacked = sent(tmp_path, *(member(b"f%d" % index) for index in range(10)), END, limits=Limits(files=4))
    assert sorted(unpacked.files) == ["f0", "f1", "f2", "f3"]
    assert len(unpacked.notes) == 6


def test_the_number_of_notes_is_limited(tmp_path: Path) -> None:
    assert len(sent(tmp_path, member(b"..") * 500, END).notes) == 20


def test_the_first_file_of_a_name_is_kept(tmp_path: Path) -> None:
    unpacked = sent(tmp_path, member(b"rank.log", b"first"), member(b"rank.log", b"second"), END)
    assert (tmp_path / "phone/rank.log").read_bytes() == b"first"
    assert unpacked.notes == ["skipped 'rank.log': a second file with this name"]


def test_the_prefix_field_is_part_of_the_name(tmp_path: Path) -> None:
    block = bytearray(header(b"passwd", 0))
    block[345:348] = b"etc"
    block[148:156] = b" " * 8
    block[148:155] = b"%06o\0" % sum(block)
    assert sent(tmp_path, bytes(block), END).files == {}
