"""However a lab ends, nothing of it stays: no process, mount, network or file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.lab.layout import LabLayout
from orchestrator.lab.lock import holder
from orchestrator.lab.modes import choose, why_not
from orchestrator.lab.processes import descendants
from orchestrator.lab.spec import Mode
from tests.labs import TestLab, eventually, running_lab

pytestmark = pytest.mark.lab


@dataclass(frozen=True)
class Trace:
    """What a lab consists of at some moment."""

    processes: frozenset[tuple[int, str]]  # with their starting times: numbers are used again
    phones: Path  # where the phones' files are

    @classmethod
    def of(cls, lab: TestLab) -> Trace:
        anchor = holder(LabLayout(lab.directory).anchor_lock)
        pids = [] if anchor is None else [anchor, *(process.pid for process in descendants(anchor))]
        return cls(frozenset(filter(None, map(_identity, pids))), LabLayout(lab.directory).phones.resolve())

    def alive(self) -> list[int]:
        return [pid for pid, start in self.processes if _identity(pid) == (pid, start)]

    def assert_gone(self, lab: TestLab) -> None:
        eventually(lambda: not self.alive())
        assert str(lab.state) not in Path("/proc/mounts").read_text()
        assert not Path("/sys/class/net/sw1").exists()
        assert not lab.directory.exists()
        assert not self.phones.exists()


def _identity(pid: int) -> tuple[int, str] | None:
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat[stat.rindex(")") + 2 :].split()
        return None if fields[0] == "Z" else (pid, fields[19])
    return None


@pytest.mark.parametrize("mode", list(Mode))
def test_whatever_is_killed_nothing_stays(mode: Mode) -> None:
    if reason := why_not(mode):
        pytest.skip(f"no lab {reason}")
    with running_lab(2, 2, mode=mode) as lab:
        _kill_a_phone(lab)
        _kill_the_anchor(lab)
        _start_afresh(lab)
        before = Trace.of(lab)
        lab.clusterctl("lab", "down")
        before.assert_gone(lab)


@pytest.mark.parametrize("mode", [None, Mode.LOOPBACK])
def test_a_lab_whose_directory_is_removed_ends(mode: Mode | None) -> None:
    with running_lab(1, mode=mode) as lab:
        before = Trace.of(lab)
        shutil.rmtree(lab.directory)
        eventually(lambda: not before.alive())
        shutil.rmtree(before.phones, ignore_errors=True)


def _kill_a_phone(lab: TestLab) -> None:
    lab.on("p1-01", "bash", "-c", "setsid sleep 6161 >/dev/null 2>&1 & touch old")
    anchor = holder(LabLayout(lab.directory).anchor_lock)
    assert anchor is not None
    (init,) = (each for each in descendants(anchor) if _has_child(each.pid, "sleep"))
    family = Trace(frozenset(filter(None, (_identity(each.pid) for each in descendants(init.pid)))), Path("/none"))
    assert len(family.processes) >= 2  # sshd and sleep
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: lab.phone("p1-01")["up"] is False and not family.alive())
    assert lab.phone("p2-01")["sshd"] is True


def _has_child(pid: int, name: str) -> bool:
    return any(each.name == name and each.parent == pid for each in descendants(pid))


def _kill_the_anchor(lab: TestLab) -> None:
    before = Trace.of(lab)
    anchor = holder(LabLayout(lab.directory).anchor_lock)
    assert anchor is not None
    assert len(before.processes) >= 3  # the anchor, and process 1 and sshd of the phone that is up
    os.kill(anchor, signal.SIGKILL)
    eventually(lambda: not before.alive())
    status = lab.clusterctl("lab", "status", check=False)
    assert status.returncode == 2
    assert "it ended" in status.stderr


def _start_afresh(lab: TestLab) -> None:
    lab.clusterctl("lab", "up", "--phones", "2", "--switches", "2")
    assert lab.on("p1-01", "ls").stdout == ""


def _exists(name: str) -> Callable[[LabLayout], bool]:
    return lambda lab: (lab.root / name).exists()


_MOMENTS: dict[str, Callable[[LabLayout], bool]] = {
    "the template is being written": _exists("upstream"),
    "the anchor is starting": _exists("anchor.log"),
    "the anchor has its lock": lambda lab: holder(lab.anchor_lock) is not None,
    "a phone is starting": _exists("phones/p2-01/console.log"),
    "the anchor is ready": _exists("anchor.sock"),
}


@pytest.mark.parametrize("moment", _MOMENTS)
def test_up_killed_while(tmp_path: Path, moment: str) -> None:
    _check_killed_up(TestLab(tmp_path / "state", choose()[0]), _MOMENTS[moment])


@pytest.mark.parametrize("moment", ["a phone is starting", "the anchor is ready"])
def test_up_on_loopback_killed_while(tmp_path: Path, moment: str) -> None:
    _check_killed_up(TestLab(tmp_path / "state", Mode.LOOPBACK), _MOMENTS[moment])


def _check_killed_up(lab: TestLab, has_come: Callable[[LabLayout], bool]) -> None:
    """`lab up` cannot clean up after itself; the next command does."""
    layout = LabLayout(lab.directory)
    try:
        with lab.started("lab", "up", "--phones", "2", "--switches", "2") as starting:
            eventually(lambda: starting.poll() is not None or has_come(layout))
        assert starting.returncode == -signal.SIGKILL
        before = Trace.of(lab)
    finally:
        lab.clusterctl("lab", "down")
    before.assert_gone(lab)


def test_up_replaces_a_half_built_lab(tmp_path: Path) -> None:
    lab = TestLab(tmp_path / "state")
    with lab.started("lab", "up", "--phones", "2", "--switches", "2"):
        eventually(lambda: _MOMENTS["the anchor is ready"](LabLayout(lab.directory)))
    try:
        lab.clusterctl("lab", "up", "--phones", "1")
        assert [phone.name for phone in LabLayout(lab.directory).phones.iterdir()] == ["p1-01"]
    finally:
        lab.clusterctl("lab", "down")


def test_an_interrupted_up_cleans_up_itself(tmp_path: Path) -> None:
    lab = TestLab(tmp_path / "state")
    with lab.started("lab", "up", "--phones", "2", "--switches", "2") as starting:
        eventually(lambda: _MOMENTS["a phone is starting"](LabLayout(lab.directory)))
        before = Trace.of(lab)
        starting.send_signal(signal.SIGINT)
        starting.communicate()
    assert starting.returncode == 130
    before.assert_gone(lab)
