"""Labs of virtual phones for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab.client import exec_on_phone, lab_status
from orchestrator.lab.modes import MODE_VARIABLE, unavailable_reason
from orchestrator.lab.spec import Mode
from orchestrator.paths import ClusterState
from orchestrator.process_lock import holder, kill_holder
from orchestrator.supervisor.systemd import supervisor_command

CLUSTERCTL = (sys.executable, "-m", "orchestrator.cli.app")


@dataclass(frozen=True)
class TestLab:
    """A state directory with a running lab in it."""

    __test__ = False  # not a test class, despite its name

    state: Path
    mode: Mode | None = None  # None: the best available

    @property
    def environment(self) -> dict[str, str]:
        forced = {MODE_VARIABLE: str(self.mode)} if self.mode else {}
        inherited = {name: value for name, value in os.environ.items() if name != "CLUSTERCTL_INVENTORY"}
        return {**inherited, "CLUSTERCTL_STATE": str(self.state), **forced}

    @property
    def directory(self) -> Path:
        return self.state / "lab"

    @property
    def inventory(self) -> Path:
        return self.directory / "inventory.yaml"

    def run(self, command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command on the host with this lab's environment."""
        return subprocess.run(command, env=self.environment, input=stdin, capture_output=True, text=True, check=False)

    def clusterctl(self, *arguments: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = self.run([*CLUSTERCTL, *arguments], stdin)
        if check and done.returncode != 0:
            raise AssertionError(f"clusterctl {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run `clusterctl` in the background. It is killed at the end if it is still running."""
        command = [*CLUSTERCTL, *arguments]
        pipe, devnull = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(
            command, env=self.environment, stdin=devnull, stdout=pipe, stderr=pipe, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()
                process.communicate()

    def on(self, phone: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on a phone, without ssh and without starting clusterctl."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, Path(os.devnull).open() as none:
            code = exec_on_phone(self.directory, phone, command, [none.fileno(), out.fileno(), err.fileno()])
            out.seek(0)
            err.seek(0)
            done = subprocess.CompletedProcess(command, code, out.read(), err.read())
        if check and code != 0:
            raise AssertionError(f"{command} on {phone}: {code}\n{done.stdout}{done.stderr}")
        return done

    @property
    def supervisor_lock(self) -> Path:
        return self.state / "clusters/lab/supervisor.lock"

    @property
    def supervisor_pid(self) -> int | None:
        return holder(self.supervisor_lock)

    def kill_supervisor(self) -> None:
        kill_holder(self.supervisor_lock)

    def start_supervisor(self) -> None:
        """As a systemd unit would."""
        command = supervisor_command(ClusterState("lab"))
        process = subprocess.Popen(command, env=self.environment, cwd="/", start_new_session=True)
        eventually(lambda: self.supervisor_pid == process.pid)
        process.returncode = 0  # it keeps running; suppress Popen's warning about that

    def phone(self, name: str) -> dict[str, object]:
        """The entry of one phone in `lab status`."""
        report = lab_status(self.directory)
        found: dict[str, object] = next(phone for phone in report["phones"] if phone["name"] == name)
        return found


@contextmanager
def running_lab(phones: int, switches: int = 1, *, mode: Mode | None = None, **options: str) -> Iterator[TestLab]:
    """A temporary lab. `options` are further flags of `lab up`, such as rate="100mbit"."""
    state = Path(tempfile.mkdtemp(prefix="cctl-"))
    lab = TestLab(state, mode)
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    try:
        lab.clusterctl("lab", "up", "--phones", str(phones), "--switches", str(switches), *flags)
        yield lab
    finally:
        lab.clusterctl("lab", "down", "--force", check=False)
        shutil.rmtree(state, ignore_errors=True)


def namespaces_missing() -> str | None:
    """Why this host cannot create network namespaces, or None if it can."""
    reasons = [unavailable_reason(mode) for mode in (Mode.ROOT, Mode.USER)]
    return None if None in reasons else "; ".join(str(reason) for reason in reasons)


def eventually(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"condition not met within {timeout_s} s"
        time.sleep(0.02)
