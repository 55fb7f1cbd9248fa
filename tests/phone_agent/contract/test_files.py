"""Files that appear whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from phone_agent.contract import safetensors
from phone_agent.contract.files import write_bytes
from phone_agent.contract.shards import write_shard
from tests.durability import DiskLog

WRITERS: list[Callable[[Path], object]] = [
    lambda path: write_bytes(path, b"whole"),
    lambda path: safetensors.write(path, {"w": np.zeros(3)}),
    lambda path: write_shard(path, np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2, np.uint16)),
]


@pytest.mark.parametrize("write", WRITERS)
def test_what_cannot_be_written_is_named_as_it_was_given(tmp_path: Path, write: Callable[[Path], object]) -> None:
    nowhere, directory = tmp_path / "nowhere" / "file", tmp_path / "directory"
    directory.mkdir()
    with pytest.raises(FileNotFoundError) as absent:
        write(nowhere)
    with pytest.raises(IsADirectoryError) as taken:
        write(directory)
    assert (absent.value.filename, taken.value.filename) == (str(nowhere), str(directory))
    assert list(tmp_path.iterdir()) == [directory]


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_is_not_blamed_on_the_file(
    tmp_path: Path, write: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as refused:
        write(tmp_path / "file")
    assert refused.value.filename is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", WRITERS)
def test_content_is_on_disk_before_its_name_and_the_name_before_the_call_returns(
    tmp_path: Path, write: Callable[[Path], object], disk_log: DiskLog
) -> None:
    write(tmp_path / "file")
    assert disk_log.is_durable(tmp_path / "file")
