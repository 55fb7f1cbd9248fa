"""The rack of the paper as 138 virtual phones on this computer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.labs import TestLab, namespaces_missing, running_lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(namespaces_missing()), reason=f"no network namespaces: {namespaces_missing()}"),
]

PHONES = 138


@pytest.fixture(scope="module")
def rack() -> Iterator[TestLab]:
    with running_lab(PHONES, 3) as lab:
        yield lab


def report(lab: TestLab, *arguments: str) -> Any:
    return json.loads(lab.clusterctl(*arguments, "--json").stdout)


def test_all_phones_are_provisioned_and_a_second_run_changes_nothing(rack: TestLab) -> None:
    first = report(rack, "provision")
    second = report(rack, "provision")
    assert [len(first["phones"]), len(second["phones"])] == [PHONES, PHONES]
    assert {phone["status"] for phone in first["phones"]} == {"changed"}
    assert {phone["status"] for phone in second["phones"]} == {"ok"}


def test_status_finds_every_phone_ready(rack: TestLab) -> None:
    phones = report(rack, "status")["phones"]
    assert [phone["state"] for phone in phones] == ["ready"] * PHONES


def test_three_steps_across_138_ranks(rack: TestLab) -> None:
    run = report(rack, "launch", "--model", "lenet", "--steps", "3", "--batch", "1")
    assert run["state"] == "done"
    assert len(run["phones"]) == PHONES
    assert run["step"] == run["steps"] == 3
