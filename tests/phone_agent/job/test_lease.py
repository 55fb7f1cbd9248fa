"""Only one computer at a time supervises a run."""

from __future__ import annotations

from pathlib import Path

from phone_agent.job.lease import DURATION_S, take


def test_a_lease_excludes_other_computers_until_it_expires(tmp_path: Path) -> None:
    now = 1000.0

    def clock() -> float:
        return now

    assert take(tmp_path, "a", clock) is None
    assert take(tmp_path, "a", clock) is None
    held = take(tmp_path, "b", clock)
    assert held is not None
    assert held.holder == "a"
    now += DURATION_S + 1
    assert take(tmp_path, "b", clock) is None
    now = 5.0  # the phone was restarted
    assert take(tmp_path, "a", clock) is None
    (tmp_path / "lease.json").write_text("not JSON")
    assert take(tmp_path, "c", clock) is None
