"""Files from elsewhere are rejected or read; a small file never takes much memory."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from orchestrator.data.sources import idx
from orchestrator.data.sources.source import SourceError
from tests.orchestrator.launch.idx import write_idx
from tests.security.bombs import BOMBS
from tests.security.boundaries import BOUNDARIES, Boundary

MAX_FILE_BYTES = 48 << 20  # that reading a file of kilobytes may take


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda boundary: boundary.name)
def test_a_file_that_claims_to_be_huge_costs_nothing(boundary: Boundary, tmp_path: Path) -> None:
    """Every number in it as large as possible, one after the other."""
    good = boundary.corpus[0]
    tracemalloc.start()
    try:
        for place in range(min(len(good), 160)):
            with contextlib.suppress(*boundary.errors):
                boundary.read(good[:place] + b"\xff\xff\xff\x7f" + good[place + 4 :], tmp_path)
        assert tracemalloc.get_traced_memory()[1] < MAX_FILE_BYTES
    finally:
        tracemalloc.stop()


def test_images_of_endless_size_are_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "idx"
    write_idx(folder, 4, 2, side=5)
    images = folder / "t10k-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:4] + (2).to_bytes(4) + b"\xff" * 8 + b"\0" * 50)
    with pytest.raises(SourceError, match="too few for"):
        idx.recognize(folder)


@pytest.mark.parametrize("kind", BOMBS)
def test_a_small_file_does_not_fill_the_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / BOMBS[kind].file
    BOMBS[kind].write(path)
    command = [sys.executable, "-m", "tests.security.bombs", kind, str(path)]
    error, grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert error in {"UsageError", "SourceError", "ValueError", "UnsupportedPickleError"}
    assert int(grown) < 160 << 20
