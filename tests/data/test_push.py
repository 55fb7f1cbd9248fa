"""What a push makes of the phones' answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.data.add import add
from orchestrator.data.push import Push
from orchestrator.data.store import Store
from orchestrator.fleet import Fleet
from orchestrator.lab.shape import Shape
from orchestrator.lab.spec import LabSpec, Mode
from phone_agent.data.receive import Stop
from phone_agent.data.shares import even_spans
from tests.data.samples import cifar10_binary

GOOD, CUT = {"error": None}, {"error": "the stream was cut off"}


@pytest.mark.parametrize(
    ("answers", "blamed", "travelled"),
    [
        ([GOOD, GOOD, GOOD], [], [0, 1, 2]),
        ([CUT, CUT, CUT], [0], []),
        ([{"error": "no space left"}, GOOD, CUT], [0], [1]),
        ([GOOD, None, CUT], [], [0]),
        ([GOOD, CUT, None], [1], [0]),
    ],
)
def test_only_the_first_that_failed_is_blamed(
    tmp_path: Path, answers: list[dict[str, Any] | None], blamed: list[int], travelled: list[int]
) -> None:
    phones = LabSpec(Mode.ROOT, Shape(3)).cluster(tmp_path, tmp_path / "inventory.yaml").phones
    stored = add("cifar", cifar10_binary(tmp_path / "cifar"), store=Store(tmp_path / "store")).stored
    push = Push(cast("Fleet", None), stored, phones, even_spans(stored.manifest.samples, 3))
    route = [Stop(phone.name, str(phone.address), phone.ssh_port, frozenset()) for phone in phones]
    told = {phone.name: answer for phone, answer in zip(phones, answers, strict=True) if answer}
    push._judge(route, told)
    assert list(push._failed) == [phones[place] for place in blamed]
    assert list(push._travelled) == [phones[place] for place in travelled]
