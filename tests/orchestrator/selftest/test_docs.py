"""docs/guide/first-phone.md lists every assumption, word for word."""

from __future__ import annotations

from pathlib import Path

from orchestrator.selftest.assumptions import all_assumptions

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "first-phone.md"


def test_the_guide_lists_every_assumption() -> None:
    page = PAGE.read_text()
    listed = [line.split(" | ") for line in page.splitlines() if line.startswith("| `") and line.count(" | ") == 3]
    documented = [(row[0].strip("|` "), row[1], row[2].strip(), row[3].removesuffix(" |")) for row in listed]
    assert documented == [
        (each.name, each.statement, "yes" if each.required else "", each.lab_caveat or "yes")
        for each in all_assumptions(2)
    ]
