"""The lab that chaos runs on, and clusterctl as a person would call it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator import process_lock
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.lab import client, settings
from orchestrator.lab.client import read_spec
from orchestrator.lab.spec import CLUSTER_NAME, LabSpec, Mode, VirtualPhone
from orchestrator.records.record import RunStore

_CLUSTERCTL = (sys.executable, "-m", "orchestrator.cli.app")
_COMMAND_S = 300.0


@dataclass(frozen=True)
class Testbed:
    state: Path
    scratch: Path

    @property
    def lab_dir(self) -> Path:
        return self.state / "lab"

    @property
    def spec(self) -> LabSpec:
        return read_spec(self.lab_dir)

    @property
    def store(self) -> RunStore:
        return RunStore(self.state / "clusters" / CLUSTER_NAME / "runs")

    def phones(self, count: int) -> tuple[VirtualPhone, ...]:
        """`count` phones spread evenly over the switches, in ring order."""
        across = sorted(self.spec.phones, key=lambda phone: (phone.port, phone.switch))[:count]
        return tuple(phone for phone in self.spec.phones if phone in across)

    def clusterctl(self, *arguments: str) -> None:
        """Run a short command. Raises ClusterctlError with the end of its error output if it fails."""
        command = [*_CLUSTERCTL, *arguments]
        shown = f"clusterctl {' '.join(arguments)}"
        try:
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, check=False, timeout=_COMMAND_S
            )
        except subprocess.TimeoutExpired:
            raise ClusterctlError(f"{shown} took longer than {_COMMAND_S:.0f} s") from None
        if done.returncode != 0:
            raise ClusterctlError(f"{shown} ended with {done.returncode}: {done.stderr.strip()[-400:]}")

    def start(self, *arguments: str) -> BackgroundCommand:
        """Start a command that follows a run."""
        with tempfile.NamedTemporaryFile("wb", dir=self.scratch, suffix=".log", delete=False) as log:
            process = subprocess.Popen(
                [*_CLUSTERCTL, *arguments], env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return BackgroundCommand(process, Path(log.name))

    def kill_supervisor(self) -> None:
        process_lock.kill_holder(self.state / "clusters" / CLUSTER_NAME / "supervisor.lock")

    def start_supervisor(self) -> None:
        """As its systemd unit would."""
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.supervisor", CLUSTER_NAME],
            env=self._environment,
            cwd="/",
            start_new_session=True,
        )
        process.returncode = 0  # it outlives this process; suppress Popen's warning about that

    def set(self, phone: str, *assignments: str) -> None:
        settings.apply_settings(self.lab_dir, phone, assignments)

    def power(self, phone: str, state: str) -> None:
        settings.set_power(self.lab_dir, phone, state)

    def run_on_phone(self, phone: str, *command: str) -> str:
        """Return what a command on a phone prints. Raises ClusterctlError if it fails."""
        with tempfile.TemporaryFile("w+") as out, Path(os.devnull).open("r+") as none:
            code = client.exec_on_phone(self.lab_dir, phone, command, [none.fileno(), out.fileno(), none.fileno()])
            out.seek(0)
            if code != 0:
                raise ClusterctlError(f"{' '.join(command)} on {phone} ended with {code}")
            return out.read()

    def run_in_lab(self, *command: str) -> None:
        """Run a command in the network namespace of the switches."""
        argv = [*client.nsenter_command(self.lab_dir), *command]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterctlError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")

    @property
    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "CLUSTERCTL_INVENTORY"}
        return {**inherited, "CLUSTERCTL_STATE": str(self.state)}


@dataclass(frozen=True)
class BackgroundCommand:
    """A `launch` or `attach` in the background."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def failed(self) -> bool:
        return bool(self.process.poll())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def last_line(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "no output"


@contextmanager
def running_lab(state: Path, phones: range) -> Iterator[Testbed]:
    """The lab that is up already, with a scratch directory."""
    with tempfile.TemporaryDirectory(prefix="cctl-chaos-") as scratch:
        testbed = Testbed(state, Path(scratch))
        _check(testbed.spec, phones)
        yield testbed


@contextmanager
def temporary_lab(phones: range) -> Iterator[Testbed]:
    """A provisioned lab in a state directory of its own, removed afterwards."""
    state = Path(tempfile.mkdtemp(prefix="cctl-chaos-"))
    try:
        with tempfile.TemporaryDirectory(prefix="cctl-chaos-") as scratch:
            testbed = Testbed(state, Path(scratch))
            try:
                testbed.clusterctl("lab", "up", "--phones", str(phones[-1]), "--switches", "2")
                _check(testbed.spec, phones)
                testbed.clusterctl("provision")
                yield testbed
            finally:
                testbed.clusterctl("lab", "down", "--force")
    finally:
        shutil.rmtree(state, ignore_errors=True)


def _check(spec: LabSpec, phones: Sequence[int]) -> None:
    if spec.mode is Mode.LOOPBACK:
        remedy = "run the lab where namespaces are allowed: docs/guide/lab.md"
        raise ClusterctlError("phones in a loopback lab have no cables or disks of their own", remedy=remedy)
    if phones[-1] > len(spec.phones):
        remedy = f"--phones {min(phones[0], len(spec.phones))}..{len(spec.phones)}, or clusterctl lab down"
        raise UsageError(f"the running lab has {len(spec.phones)} phones, not {phones[-1]}", remedy=remedy)
