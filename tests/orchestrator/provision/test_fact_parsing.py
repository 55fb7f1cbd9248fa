from __future__ import annotations

import json

import pytest

from orchestrator.provision.fact_parsing import (
    Battery,
    FactLines,
    clock_offset,
    parse_battery,
    parse_ssh_version,
)


def test_fact_lines_ignore_other_lines_and_the_last_value_wins() -> None:
    lines = FactLines.parse("Welcome!\narch\tx86_64\narch\taarch64\npackage\tbash\t5.3\npackage\tbash\nempty\t\n")
    assert (lines.text("arch"), lines.text("missing"), "package" in lines) == ("aarch64", "", True)
    assert lines.pairs("package") == [("bash", "5.3")]
    assert lines.rows("package", 1) == [["bash"]]


@pytest.mark.parametrize(("text", "value"), [("12", 12), ("-1", None), ("1e3", None), ("9" * 40, None), ("", None)])
def test_integers_are_bounded(text: str, value: int | None) -> None:
    assert FactLines([["key", text]]).integer("key") == value


@pytest.mark.parametrize(
    ("raw", "battery"),
    [
        (None, None),
        ([1], None),
        ({}, None),
        ({"plugged": 3, "percentage": "many"}, None),
        ({"percentage": 15.4}, Battery(percent=15)),
        ({"plugged": "UNPLUGGED"}, Battery(plugged=False, power_source="UNPLUGGED")),
    ],
)
def test_batteries(raw: object, battery: Battery | None) -> None:
    assert parse_battery(json.dumps(raw)) == battery


@pytest.mark.parametrize(("epoch", "offset"), [(1000.0, 0.0), (1031.0, 30.0), (990.0, -9.0), (None, None)])
def test_the_clock_offset_is_zero_within_the_window(epoch: float | None, offset: float | None) -> None:
    assert clock_offset(epoch, (999.0, 1001.0)) == offset


def test_nested_lists_and_versions() -> None:
    assert parse_battery("[" * 100_000) is None
    assert parse_ssh_version("OpenSSH_9.8p1, OpenSSL 3.3") == (9, 8)
    assert parse_ssh_version("dropbear") is None
