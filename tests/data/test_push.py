"""What a push makes of the phones' answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.data.add import add
from orchestrator.data.push import SPARE_BYTES, Held, Push, all_to_all, wanted_files
from orchestrator.data.store import Store
from orchestrator.fleet import Fleet
from orchestrator.lab.shape import Shape
from orchestrator.lab.spec import LabSpec, Mode
from phone_agent.data.manifest import Manifest
from phone_agent.data.receive import Stop
from phone_agent.data.shares import even_spans
from tests.agent.datasets import stage
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


NONE, SHARE, MOST, WHOLE = range(4)
ROOMY, TIGHT = 10 * SPARE_BYTES, 1000


def holding(manifest: Manifest, place: int, phones: int, what: int, free_bytes: int) -> Held:
    spans = even_spans(manifest.samples, phones)[place]
    names: dict[int, frozenset[str]] = {
        NONE: frozenset(),
        SHARE: wanted_files(manifest, spans, whole=False),
        MOST: frozenset(file.name for file in manifest.files[:-1]),  # as a push that was cut off leaves it
        WHOLE: wanted_files(manifest, (), whole=True),
    }
    sums = {file.name: file.sha256 for file in manifest.files if file.name in names[what]}
    return Held(manifest.digest, free_bytes, sums)


@pytest.mark.parametrize(
    ("holds", "free_bytes", "whole"),
    [
        ((WHOLE, WHOLE, WHOLE), TIGHT, True),
        ((WHOLE, WHOLE, WHOLE), ROOMY, True),
        ((SHARE, SHARE, SHARE), ROOMY, False),
        ((SHARE, SHARE, SHARE), TIGHT, False),
        ((SHARE, SHARE, NONE), ROOMY, True),
        ((SHARE, SHARE, NONE), TIGHT, False),
        ((MOST, MOST, MOST), ROOMY, True),
        ((WHOLE, WHOLE, SHARE), ROOMY, True),
        ((NONE, NONE, NONE), ROOMY, True),
        ((NONE, NONE, NONE), TIGHT, False),
    ],
)
def test_what_was_pushed_before_is_what_is_taken(
    tmp_path: Path, holds: tuple[int, ...], free_bytes: int, *, whole: bool
) -> None:
    manifest = stage(tmp_path / "dots", train=300, test=50)
    held = [holding(manifest, place, len(holds), what, free_bytes) for place, what in enumerate(holds)]
    assert all_to_all(manifest, held, even_spans(manifest.samples, len(holds))) is whole


def test_files_of_another_dataset_of_that_name_do_not_count(tmp_path: Path) -> None:
    manifest = stage(tmp_path / "dots", train=300, test=50)
    old = Held("another", TIGHT, {file.name: "0" * 64 for file in manifest.files})
    assert not all_to_all(manifest, [old], even_spans(manifest.samples, 1))
