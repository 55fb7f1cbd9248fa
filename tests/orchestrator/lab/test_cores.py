from __future__ import annotations

import pytest

from orchestrator.lab.phone import cores_of
from tests.labs import TestLab


@pytest.mark.parametrize(
    ("phones", "cores", "dealt"),
    [
        (1, [0, 1], [{0, 1}]),
        (3, [0, 1], [{0}, {1}, {0}]),
        (2, [2, 3, 5, 7], [{2, 3}, {5, 7}]),
        (2, [4, 5, 6], [{4}, {5}]),
    ],
)
def test_cores_are_dealt_out_in_turn(phones: int, cores: list[int], dealt: list[set[int]]) -> None:
    assert [cores_of(index, phones, cores) for index in range(phones)] == dealt


@pytest.mark.lab
def test_a_phone_computes_on_its_own_share_only(lab4: TestLab) -> None:
    counts = {int(lab4.on(name, "nproc").stdout) for name in ("p1-01", "p1-02", "p2-01", "p2-02")}
    everything = int(lab4.run(["nproc"]).stdout)
    assert counts == {max(1, everything // 4)}
