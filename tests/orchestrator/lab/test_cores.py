from __future__ import annotations

import pytest

from orchestrator.lab.phone import assign_cores
from tests.labs import TestLab


@pytest.mark.parametrize(
    ("phones", "cores", "assigned"),
    [
        (1, [0, 1], [{0, 1}]),
        (3, [0, 1], [{0}, {1}, {0}]),
        (2, [2, 3, 5, 7], [{2, 3}, {5, 7}]),
        (2, [4, 5, 6], [{4}, {5}]),
    ],
)
def test_cores_are_divided_among_phones(phones: int, cores: list[int], assigned: list[set[int]]) -> None:
    assert [assign_cores(index, phones, cores) for index in range(phones)] == assigned


@pytest.mark.lab
def test_a_phone_uses_only_its_own_cores(lab4: TestLab) -> None:
    counts = {int(lab4.on(name, "nproc").stdout) for name in ("p1-01", "p1-02", "p2-01", "p2-02")}
    total = int(lab4.run(["nproc"]).stdout)
    assert counts == {max(1, total // 4)}
