"""Where chaos may rage: a lab, and clusterctl as a person would call it there."""

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

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.lab import faults, remote
from orchestrator.lab.client import read_spec
from orchestrator.lab.spec import CLUSTER_NAME, LabSpec, Mode, VirtualPhone
from orchestrator.records.record import RunStore

_CLUSTERCTL = (sys.executable, "-m", "orchestrator.cli.app")
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Ground:
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
        """The first of each switch, then the second of each, and so on; in ring order."""
        across = sorted(self.spec.phones, key=lambda phone: (phone.port, phone.switch))[:count]
        return tuple(phone for phone in self.spec.phones if phone in across)

    def call(self, *arguments: str) -> None:
        """A short command. Raises ClusterctlError with its last words if it failed."""
        command = [*_CLUSTERCTL, *arguments]
        told = f"clusterctl {' '.join(arguments)}"
        try:
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
            )
        except subprocess.TimeoutExpired:
            raise ClusterctlError(f"{told} took longer than {_PATIENCE_S:.0f} s") from None
        if done.returncode != 0:
            raise ClusterctlError(f"{told} ended with {done.returncode}: {done.stderr.strip()[-400:]}")

    def begin(self, *arguments: str) -> Watching:
        """A command that watches a run."""
        with tempfile.NamedTemporaryFile("wb", dir=self.scratch, suffix=".log", delete=False) as log:
            process = subprocess.Popen(
                [*_CLUSTERCTL, *arguments], env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return Watching(process, Path(log.name))

    def set(self, phone: str, *assignments: str) -> None:
        faults.change(self.lab_dir, phone, assignments)

    def power(self, phone: str, state: str) -> None:
        faults.set_power(self.lab_dir, phone, state)

    def on(self, phone: str, *command: str) -> str:
        """What a command on a phone prints. Raises ClusterctlError if it fails."""
        with tempfile.TemporaryFile("w+") as out, Path(os.devnull).open("r+") as none:
            code = remote.run(self.lab_dir, phone, command, [none.fileno(), out.fileno(), none.fileno()])
            out.seek(0)
            if code != 0:
                raise ClusterctlError(f"{' '.join(command)} on {phone} ended with {code}")
            return out.read()

    def inside(self, *command: str) -> None:
        """A command among the lab's switches."""
        argv = [*remote.entering(self.lab_dir), *command]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterctlError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")

    @property
    def _environment(self) -> dict[str, str]:
        rackless = {name: value for name, value in os.environ.items() if name != "CLUSTERCTL_INVENTORY"}
        return {**rackless, "CLUSTERCTL_STATE": str(self.state)}


@dataclass(frozen=True)
class Watching:
    """A `launch` or `attach` in the background."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def over(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "no word from it"


@contextmanager
def lab_that_is_up(state: Path, phones: range) -> Iterator[Ground]:
    """For as long as chaos takes, with a directory for what it leaves lying about."""
    with tempfile.TemporaryDirectory(prefix="cctl-chaos-") as scratch:
        ground = Ground(state, Path(scratch))
        _check(ground.spec, phones)
        yield ground


@contextmanager
def lab_of_its_own(phones: range) -> Iterator[Ground]:
    """Provisioned; in a state directory of its own; gone afterwards."""
    state = Path(tempfile.mkdtemp(prefix="cctl-chaos-"))
    try:
        with tempfile.TemporaryDirectory(prefix="cctl-chaos-") as scratch:
            ground = Ground(state, Path(scratch))
            try:
                ground.call("lab", "up", "--phones", str(phones[-1]), "--switches", "2")
                _check(ground.spec, phones)
                ground.call("provision")
                yield ground
            finally:
                ground.call("lab", "down")
    finally:
        shutil.rmtree(state, ignore_errors=True)


def _check(spec: LabSpec, phones: Sequence[int]) -> None:
    if spec.mode is Mode.LOOPBACK:
        remedy = "run the lab where namespaces are allowed: docs/guide/lab.md"
        raise ClusterctlError("phones of this lab have neither cables nor disks of their own", remedy=remedy)
    if phones[-1] > len(spec.phones):
        remedy = f"--phones {min(phones[0], len(spec.phones))}..{len(spec.phones)}, or clusterctl lab down"
        raise UsageError(f"the lab that is up has {len(spec.phones)} phones, not {phones[-1]}", remedy=remedy)
