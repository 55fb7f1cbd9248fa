"""A sample of `make fuzz`: everything that reads foreign data survives generated hostile inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.boundaries import BOUNDARIES, Boundary
from tests.security.fuzz import tried
from tests.security.fuzzer import fuzz, shares

INPUTS, LEAST = 20_000, 100
MAX_GROWTH = 64 << 20


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda boundary: boundary.name)
def test_hostile_inputs_are_survived(boundary: Boundary, tmp_path: Path) -> None:
    found = fuzz(boundary, max(LEAST, shares(BOUNDARIES, INPUTS)[boundary]), "1", tmp_path)
    tried(boundary.name, found.inputs)
    assert found.grown_bytes < MAX_GROWTH
