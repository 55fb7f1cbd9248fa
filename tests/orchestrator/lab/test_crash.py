"""However a lab ends, no process, mount, network interface or file is left behind."""

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
from orchestrator.lab.modes import select_mode, unavailable_reason
from orchestrator.lab.processes import descendants
from orchestrator.lab.spec import Mode
from orchestrator.process_lock import holder
from tests.labs import TestLab, eventually, running_lab

pytestmark = pytest.mark.lab


@dataclass(frozen=True)
class LabSnapshot:
    """The processes and files of a lab at some moment."""

    processes: frozenset[tuple[int, str]]  # with start times, because PIDs are reused
    phones: Path  # directory of the phones' files

    @classmethod
    def of(cls, lab: TestLab) -> LabSnapshot:
        daemon = holder(LabLayout(lab.directory).daemon_lock)
        pids = [] if daemon is None else [daemon, *(process.pid for process in descendants(daemon))]
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
def test_nothing_is_left_after_killing_a_phone_or_the_daemon(mode: Mode) -> None:
    if reason := unavailable_reason(mode):
        pytest.skip(reason)
    with running_lab(2, 2, mode=mode) as lab:
        _kill_a_phone(lab)
        _kill_the_daemon(lab)
        _start_again(lab)
        before = LabSnapshot.of(lab)
        lab.clusterctl("lab", "down")
        before.assert_gone(lab)


@pytest.mark.parametrize("mode", [None, Mode.LOOPBACK])
def test_a_lab_exits_when_its_directory_is_deleted(mode: Mode | None) -> None:
    with running_lab(1, mode=mode) as lab:
        before = LabSnapshot.of(lab)
        shutil.rmtree(lab.directory)
        eventually(lambda: not before.alive())
        shutil.rmtree(before.phones, ignore_errors=True)


def _kill_a_phone(lab: TestLab) -> None:
    lab.on("p1-01", "bash", "-c", "setsid sleep 6161 >/dev/null 2>&1 & touch old")
    daemon = holder(LabLayout(lab.directory).daemon_lock)
    assert daemon is not None
    (init,) = (process for process in descendants(daemon) if _has_child(process.pid, "sleep"))
    family = LabSnapshot(
        frozenset(filter(None, (_identity(each.pid) for each in descendants(init.pid)))), Path("/none")
    )
    assert len(family.processes) >= 2  # sshd and sleep
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: lab.phone("p1-01")["up"] is False and not family.alive())
    assert lab.phone("p2-01")["sshd"] is True


def _has_child(pid: int, name: str) -> bool:
    return any(each.name == name and each.parent == pid for each in descendants(pid))


def _kill_the_daemon(lab: TestLab) -> None:
    before = LabSnapshot.of(lab)
    daemon = holder(LabLayout(lab.directory).daemon_lock)
    assert daemon is not None
    assert len(before.processes) >= 3  # the daemon, and process 1 and sshd of the phone that is up
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not before.alive())
    status = lab.clusterctl("lab", "status", check=False)
    assert status.returncode == 2
    assert "without cleaning up" in " ".join(status.stderr.split())


def _start_again(lab: TestLab) -> None:
    lab.clusterctl("lab", "up", "--phones", "2", "--switches", "2")
    assert lab.on("p1-01", "ls").stdout == ""


def _exists(name: str) -> Callable[[LabLayout], bool]:
    return lambda lab: (lab.root / name).exists()


_STAGES: dict[str, Callable[[LabLayout], bool]] = {
    "the template is being written": _exists("upstream"),
    "the daemon is starting": _exists("daemon.log"),
    "the daemon has its lock": lambda lab: holder(lab.daemon_lock) is not None,
    "a phone is starting": _exists("phones/p2-01/console.log"),
    "the daemon is ready": _exists("daemon.sock"),
}


@pytest.mark.parametrize("stage", _STAGES)
def test_nothing_is_left_after_up_is_killed_while(tmp_path: Path, stage: str) -> None:
    _check_cleanup_after_kill(TestLab(tmp_path / "state", select_mode()[0]), _STAGES[stage])


@pytest.mark.parametrize("stage", ["a phone is starting", "the daemon is ready"])
def test_nothing_is_left_after_up_on_loopback_is_killed_while(tmp_path: Path, stage: str) -> None:
    _check_cleanup_after_kill(TestLab(tmp_path / "state", Mode.LOOPBACK), _STAGES[stage])


def _check_cleanup_after_kill(lab: TestLab, reached: Callable[[LabLayout], bool]) -> None:
    """A killed `lab up` cannot clean up; the next lab command does."""
    layout = LabLayout(lab.directory)
    try:
        with lab.started("lab", "up", "--phones", "2", "--switches", "2") as starting:
            eventually(lambda: starting.poll() is not None or reached(layout))
        assert starting.returncode == -signal.SIGKILL
        before = LabSnapshot.of(lab)
    finally:
        lab.clusterctl("lab", "down")
    before.assert_gone(lab)


def test_up_replaces_a_half_built_lab(tmp_path: Path) -> None:
    lab = TestLab(tmp_path / "state")
    with lab.started("lab", "up", "--phones", "2", "--switches", "2"):
        eventually(lambda: _STAGES["the daemon is ready"](LabLayout(lab.directory)))
    try:
        lab.clusterctl("lab", "up", "--phones", "1")
        assert [phone.name for phone in LabLayout(lab.directory).phones.iterdir()] == ["p1-01"]
    finally:
        lab.clusterctl("lab", "down")


def test_an_interrupted_up_cleans_up(tmp_path: Path) -> None:
    lab = TestLab(tmp_path / "state")
    with lab.started("lab", "up", "--phones", "2", "--switches", "2") as starting:
        eventually(lambda: _STAGES["a phone is starting"](LabLayout(lab.directory)))
        before = LabSnapshot.of(lab)
        starting.send_signal(signal.SIGINT)
        starting.communicate()
    assert starting.returncode == 130
    before.assert_gone(lab)
