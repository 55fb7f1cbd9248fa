"""`clusterctl inventory` as a person or a script meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.cli.app import main

ROOT = Path(__file__).parents[3]
BROKEN = Path("tests/orchestrator/inventory/broken")


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Shell:
    """Runs commands in this process; `apart` in one of their own, where the environment decides how it looks."""

    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    def __call__(self, *arguments: str) -> Ended:
        self.patch.setattr("sys.argv", ["clusterctl", "inventory", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        code = stop.value.code
        assert code is None or isinstance(code, int)
        return Ended(code or 0, *self.capture.readouterr())

    def apart(self, *arguments: str, **environment: str) -> str:
        argv = [str(Path(sys.executable).with_name("clusterctl")), "inventory", *arguments]
        return subprocess.run(
            argv, env=os.environ | environment, capture_output=True, encoding="utf-8", check=True
        ).stdout


@pytest.fixture
def clusterctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    monkeypatch.delenv("CLUSTERCTL_INVENTORY", raising=False)
    monkeypatch.chdir(ROOT)
    return Shell(capsys, monkeypatch)


def test_check_counts(clusterctl: Shell) -> None:
    ended = clusterctl("check")
    assert (ended.returncode, ended.stdout) == (0, "ok inventory.yaml: 138 phones on 3 switches\n")


def test_check_tells_what_a_limit_selects(clusterctl: Shell) -> None:
    assert clusterctl("check", "-l", "sw1:1-3,!p1-02").stdout.splitlines()[1:] == ["selected: 2 (sw1:1,3)"]


def test_check_tells_every_problem_with_its_line(clusterctl: Shell) -> None:
    ended = clusterctl("check", "-i", str(BROKEN / "uplink-islands.yaml"))
    assert ended.returncode == 2
    first, excerpt, second, _, total = ended.stdout.splitlines()
    assert first.startswith(
        "tests/orchestrator/inventory/broken/uplink-islands.yaml:10: no uplink connects sw3, sw4 with sw1"
    )
    assert excerpt.startswith("   10 │   sw3:")
    assert second.startswith("tests/orchestrator/inventory/broken/uplink-islands.yaml:15: ")
    assert total == "2 problems"


def test_check_as_json(clusterctl: Shell) -> None:
    right = json.loads(clusterctl("check", "--json").stdout)
    assert (right["ok"], right["phones"], right["switches"], right["problems"]) == (True, 138, 3, [])
    ended = clusterctl("check", "--json", "-i", str(BROKEN / "host-outside-subnet.yaml"))
    wrong = json.loads(ended.stdout)
    expected = "host: address 192.168.1.5 is outside the wired subnet 10.77.0.0/16"
    assert (ended.returncode, wrong["ok"], wrong["problems"]) == (2, False, [{"line": 2, "message": expected}])


def test_check_warns_of_an_uplink_that_slows_the_ring(clusterctl: Shell, tmp_path: Path) -> None:
    slow = tmp_path / "slow.yaml"
    text = (ROOT / "inventory.yaml").read_text(encoding="utf-8")
    slow.write_text(text.replace("to: sw2:47, rate: 1gbit", "to: sw2:47, rate: 100mbit"), encoding="utf-8")
    ended = clusterctl("check", "-i", str(slow))
    assert ended.returncode == 0
    assert "the uplink from sw1 to sw2 (100mbit) is slower than the phone links (1gbit)" in " ".join(
        ended.stderr.split()
    )


def test_other_commands_refuse_a_broken_inventory(clusterctl: Shell) -> None:
    ended = clusterctl("hostfile", "-i", str(BROKEN / "host-outside-subnet.yaml"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "clusterctl inventory check -i tests/orchestrator/inventory/broken/host-outside-subnet.yaml" in ended.stderr


def test_unknown_name_in_limit(clusterctl: Shell) -> None:
    ended = clusterctl("show", "-l", "p1-7")
    assert ended.returncode == 2
    assert "did you mean 'p1-07'?" in ended.stderr


def test_hostfile(clusterctl: Shell) -> None:
    lines = clusterctl("hostfile").stdout.splitlines()
    assert (len(lines), lines[0], lines[46], lines[-1]) == (
        138,
        "10.77.1.1 slots=1",
        "10.77.2.1 slots=1",
        "10.77.3.46 slots=1",
    )


def test_hostfile_interleaved_and_limited(clusterctl: Shell) -> None:
    ended = clusterctl("hostfile", "--order", "interleaved", "--limit", "sw1:1-2,sw3:1-2")
    assert re.findall(r"10\.77\.(\d\.\d)", ended.stdout) == ["1.1", "3.1", "1.2", "3.2"]


FACE = """\
│ ╭─ sw3  2 of 46 phones  p3-01 … p3-46  10.77.3.1 … 10.77.3.46 ───────────────╮
│ │ ░░ ░░ ░░ ░░ ░░ ░░  ░░ ░░ ░░ ░░ ░░ ░░  ░░ ░░ ░░ ░░ ░░ ░░  ░░ ░░ ░░ ░░ 45  · │
│ │ ░░ ░░ ░░ ░░ ░░ ░░  ░░ ░░ ░░ ░░ ░░ ░░  ░░ ░░ ░░ ░░ ░░ ░░  ░░ ░░ ░░ ░░ 46  ⇅ │
"""


def test_show_draws_faces_and_cables_in_80_columns(clusterctl: Shell) -> None:
    drawn = clusterctl.apart("show", "-l", "sw3:45-46,sw1", COLUMNS="80")
    assert FACE in drawn
    assert "│  ▼ sw1:48 ━ 1gbit ━ sw2:47\n" in drawn
    assert "╰─ ▲ sw2:47 ━ 1gbit ━ sw1:48\n" in drawn
    assert max(map(len, drawn.splitlines())) <= 80


def test_show_colors_a_terminal_only(clusterctl: Shell) -> None:
    assert "\x1b[30;42m46\x1b[0m" in clusterctl.apart("show", FORCE_COLOR="1", TERM="xterm")
    assert "\x1b" not in clusterctl.apart("show")


def test_show_in_ascii(clusterctl: Shell) -> None:
    drawn = clusterctl.apart("show", PYTHONIOENCODING="ascii", COLUMNS="80")
    assert drawn.isascii()
    assert "38 40 42 44 46  ^ |" in drawn


def test_show_folds_a_face_wider_than_the_screen(clusterctl: Shell) -> None:
    drawn = clusterctl.apart("show", COLUMNS="40")
    assert max(map(len, drawn.splitlines())) <= 40
    assert "│ 38 40 42 44 46  ⇅  " in drawn


def test_show_as_json(clusterctl: Shell) -> None:
    shown = json.loads(clusterctl("show", "--json", "-l", "sw2:1-2").stdout)
    assert shown["ring"] == ["p2-01", "p2-02"]
    assert [len(switch["phones"]) for switch in shown["switches"]] == [0, 2, 0]
    assert shown["switches"][0]["uplink"] == {"port": 48, "to": "sw2", "to_port": 47, "rate": "1gbit"}
