"""docs/guide/first-phone.md lists what is asked, word for word."""

from __future__ import annotations

from pathlib import Path

from orchestrator.selftest.assumptions import all_beliefs

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "first-phone.md"


def test_the_page_lists_every_check() -> None:
    page = PAGE.read_text()
    listed = [line.split(" | ") for line in page.splitlines() if line.startswith("| `") and line.count(" | ") == 3]
    told = [(row[0].strip("|` "), row[1], row[2].strip(), row[3].removesuffix(" |")) for row in listed]
    assert told == [
        (belief.name, belief.settles, "yes" if belief.needed else "", belief.lab or "yes") for belief in all_beliefs(2)
    ]
