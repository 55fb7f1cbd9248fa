"""Starting the supervisor process: detached, or by systemd.

No systemd of a user runs in the test environment: `systemctl` is a script here that starts what the unit says.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from orchestrator.paths import ClusterState
from orchestrator.supervisor import service, systemd
from orchestrator.supervisor.service import SupervisorStartError, end_supervisor, ensure_supervisor, start_supervisor
from orchestrator.supervisor.status import read_status, write_status
from orchestrator.supervisor.systemd import Unit

if TYPE_CHECKING:
    from orchestrator.inventory.model import Cluster

LAB = cast("Cluster", type("LabCluster", (), {"lab": Path("/lab")})())
RACK = cast("Cluster", type("RackCluster", (), {"lab": None})())

SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$0.log"
case "$2" in
  restart) exec {python} {runner} "$XDG_CONFIG_HOME/systemd/user/$3" ;;
esac
"""
RUNNER = """
import shlex, subprocess, sys
text = open(sys.argv[1]).read().replace("%%", "%")
service = [line.partition("=") for line in text.splitlines() if "=" in line]
command = next(shlex.split(value) for name, _, value in service if name == "ExecStart")
environment = dict(shlex.split(value)[0].split("=", 1) for name, _, value in service if name == "Environment")
null = subprocess.DEVNULL
subprocess.Popen(command, env=environment, cwd="/", start_new_session=True, stdin=null, stdout=null, stderr=null)
"""
IDLE = """
from orchestrator.supervisor import process, systemd
from orchestrator.paths import ClusterState
process.IDLE_S, state = 0.1, ClusterState("rack")
process.SupervisorProcess(state, systemd.Unit(state)).run()
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterState]:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state of 100%"))
    monkeypatch.setattr(systemd, "is_available", lambda: False)
    state = ClusterState("rack")
    yield state
    end_supervisor(state)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in, and the file beside it that lists what it was called with."""
    monkeypatch.setattr(systemd, "is_available", lambda: True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "bin").mkdir()
    runner, script = tmp_path / "bin/runner.py", tmp_path / "bin/systemctl"
    runner.write_text(RUNNER)
    script.write_text(SYSTEMCTL.format(python=sys.executable, runner=runner))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    return script.with_name("systemctl.log")


def test_a_detached_process_is_started_once_with_the_recorded_environment(
    state: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "1")
    first = ensure_supervisor(LAB, state)
    assert ensure_supervisor(LAB, state).pid == first.pid
    assert start_supervisor(LAB, state).process is None
    environment = Path(f"/proc/{first.pid}/environ").read_bytes().split(b"\0")
    assert f"CLUSTERCTL_STATE={os.environ['CLUSTERCTL_STATE']}".encode() in environment
    assert not any(line.startswith(b"SECRET") for line in environment)
    assert Path(f"/proc/{first.pid}/cwd").readlink() == Path("/")
    assert os.getsid(first.pid) == first.pid, "it does not belong to this terminal"


def test_a_supervisor_of_another_version_is_replaced_by_launch_and_attach(state: ClusterState) -> None:
    older = ensure_supervisor(LAB, state)
    write_status(state, replace(older, version="0.1.0"))
    assert ensure_supervisor(LAB, state).pid == older.pid, "whatever its version"
    newer = start_supervisor(LAB, state).wait()
    assert newer.pid != older.pid
    assert newer.version != "0.1.0"


def test_a_supervisor_that_cannot_start_is_reported_with_the_reason(
    state: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "supervisor_command", lambda _state: [sys.executable, "-c", "import no_such_module"])
    with pytest.raises(SupervisorStartError, match="No module named 'no_such_module'"):
        ensure_supervisor(LAB, state)


def test_systemd_starts_the_unit_and_enables_it(state: ClusterState, systemctl: Path) -> None:
    status = ensure_supervisor(RACK, state)
    name = Unit(state).name
    assert systemctl.read_text().splitlines() == [
        f"--user {each}" for each in ("daemon-reload", f"enable {name}", f"restart {name}")
    ]
    command = Path(f"/proc/{status.pid}/cmdline").read_bytes().split(b"\0")
    assert b"--unit" in command


@pytest.mark.usefixtures("systemctl")
def test_the_supervisor_of_a_lab_is_no_unit(state: ClusterState) -> None:
    """A lab does not outlive a boot."""
    ensure_supervisor(LAB, state)
    assert not Unit(state).path.exists()


def test_an_idle_supervisor_disables_its_unit(state: ClusterState, systemctl: Path) -> None:
    state.root.mkdir(parents=True)
    subprocess.run(
        [sys.executable, "-c", IDLE], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert systemctl.read_text() == f"--user disable {Unit(state).name}\n"
    assert read_status(state) is None


def test_a_unit_that_systemd_rejects_is_reported(state: ClusterState, systemctl: Path) -> None:
    script = systemctl.with_suffix("")
    script.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    with pytest.raises(Exception, match="systemctl --user daemon-reload: Failed to connect to bus"):
        ensure_supervisor(RACK, state)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(state: ClusterState, tmp_path: Path) -> None:
    path = tmp_path / Unit(state).name
    path.write_text(Unit(state).text({**service.environment(), "TRICKY": 'a "quoted" \\ 100% value'}))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", path],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_supervisor_that_ended_meanwhile_is_started_again(state: ClusterState) -> None:
    """As when it was idle, or was killed while data was pushed."""
    first = ensure_supervisor(LAB, state)
    starting = start_supervisor(LAB, state)
    end_supervisor(state)
    assert starting.wait().pid != first.pid


def test_a_supervisor_that_cannot_write_its_status_is_running(
    state: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of this computer is full."""
    state.supervisor_status.mkdir(parents=True)
    monkeypatch.setattr(service, "START_TIMEOUT_S", 20.0)
    assert start_supervisor(LAB, state).wait().pid > 0


def test_the_environment_does_not_depend_on_the_working_directory_or_the_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "src:/abs")
    monkeypatch.setenv("TMPDIR", "/run/of-a-login")
    environment = service.environment()
    assert environment["PYTHONPATH"] == f"{Path.cwd()}/src:/abs"
    assert "TMPDIR" not in environment


def test_a_dollar_in_the_command_of_the_unit_is_no_variable(
    state: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/$venv/python")
    (command,) = (line for line in Unit(state).text({}).splitlines() if line.startswith("ExecStart="))
    assert command.startswith('ExecStart="/opt/$$venv/python"')
