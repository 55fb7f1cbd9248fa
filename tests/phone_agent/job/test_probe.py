"""Who killed a rank, according to Android's log."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from phone_agent.contract import layout
from phone_agent.job import probe

PHANTOM = "11-16 14:12:40.000  1000  1500  1500 I ActivityManager: Killing PhantomProcessRecord"
LOG = f"""{PHANTOM} {{00a1b2c 4321:python3/u0a105}}: Trimming phantom processes
{PHANTOM} {{00a1b2d 555:500:python3/u0a105}}: Trimming phantom processes
11-16 14:13:00.000   200   200 I lowmemorykiller: Kill 'python3' (777), uid 10105, oom_score_adj 900
"""


@pytest.mark.parametrize(
    ("pid", "killer"),
    [
        (4321, "Android's phantom process killer"),
        (555, "Android's phantom process killer"),
        (777, "Android, because memory was low"),
        (432, None),  # lines about other processes
    ],
)
def test_only_log_lines_about_the_rank_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: int, killer: str | None
) -> None:
    (tmp_path / layout.RANK_EVENTS_FILE).write_text(json.dumps({"pid": pid, "pid_started": 1}) + "\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=LOG))
    assert probe.find_killer(tmp_path) == killer


def test_no_killer_without_a_rank_or_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe.find_killer(tmp_path) is None
    (tmp_path / layout.RANK_EVENTS_FILE).write_text(json.dumps({"pid": 4321, "pid_started": 1}) + "\n")
    monkeypatch.setattr(probe, "LOGCAT", (str(tmp_path / "no-logcat"),))
    assert probe.find_killer(tmp_path) is None
