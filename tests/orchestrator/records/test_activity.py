"""What the supervisor is doing, as others read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.records.activity import FILE, Activity, ActivityFile, read_activity


def test_it_is_read_as_written(tmp_path: Path) -> None:
    assert read_activity(tmp_path) == Activity()
    file = ActivityFile(tmp_path)
    file.report_phase("staging on", 0, 4)
    file.report_phase("staging on", 4, 4)
    file.report("fetching")
    file.report_problem("no route")
    assert read_activity(tmp_path) == Activity({"staging on": (4, 4)}, "fetching", "no route")
    file.report_problem("")
    assert read_activity(tmp_path) == Activity({"staging on": (4, 4)}, "fetching")
    file.clear()
    assert read_activity(tmp_path) == Activity()


def test_that_of_an_earlier_supervisor_is_cleared(tmp_path: Path) -> None:
    ActivityFile(tmp_path).report_problem("no route")
    ActivityFile(tmp_path).clear()
    assert read_activity(tmp_path) == Activity()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"phases": {"x": 1}, "doing": "", "problem": ""}', '{"phases": 1}'])
def test_a_damaged_file_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert read_activity(tmp_path) == Activity()
