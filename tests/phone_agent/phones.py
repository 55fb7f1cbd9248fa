"""Phones for tests of the agent: one home directory and one loopback address each, on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from orchestrator.supervisor.resume_point import elect_step
from phone_agent.contract import layout
from phone_agent.contract.schema import (
    CommunicationSpec,
    ComputeSpec,
    DataSpec,
    LaunchSpec,
    OptimizerSpec,
    RankSpec,
    RecoverySpec,
    ResumeSpec,
    RunSpec,
)
from phone_agent.core import build
from phone_agent.memckpt import client

REPOSITORY = Path(__file__).resolve().parents[2]
AGENT = (sys.executable, "-m", "phone_agent")
MPI_ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,tcp",  # as on phones
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CLUSTERCTL_CACHE": str(build.cache_dir()),  # reuse the compiled core: these homes are new and empty
    "PYTHONPATH": str(REPOSITORY),
}
SYNTHETIC = DataSpec("synthetic", 400, (28, 28, 1), 10)
GROUPS = {"communication": CommunicationSpec, "compute": ComputeSpec, "recovery": RecoverySpec}


@dataclass(frozen=True)
class Phone:
    home: Path

    def agent(self, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*AGENT, *arguments], env=self.env, capture_output=True, text=True, timeout=timeout, check=False
        )

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, **MPI_ENV, "HOME": str(self.home)}

    def run_dir(self, run_id: str) -> Path:
        return self.home / layout.run_dir(run_id)

    def events(self, run_id: str, name: str = layout.EVENTS_FILE) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run_dir(run_id) / name).read_text().splitlines()]

    def stage(self, spec: RunSpec, argv: Sequence[str] | None = None) -> Path:
        directory = self.run_dir(spec.run_id)
        directory.mkdir(parents=True)
        (directory / layout.RUN_FILE).write_text(spec.to_json())
        if argv is not None:
            (directory / layout.HOSTFILE).write_text("127.0.0.1 slots=1\n")
            (directory / layout.LAUNCH_FILE).write_text(LaunchSpec(spec.run_id, tuple(argv), {}).to_json())
        return directory


def run_spec(batches: Sequence[int], *, run_id: str = "run", steps: int = 12, **changes: Any) -> RunSpec:
    """`changes`: fields of a RunSpec, or of its groups of options."""
    ranks = tuple(
        RankSpec(rank, f"p1-{rank + 1:02}", "sw1", rank + 1, f"127.77.1.{rank + 1}", batch)
        for rank, batch in enumerate(batches)
    )
    options: dict[str, Any] = {"algorithm": "ring", "backend": "cpu", "threads": 1, **changes}
    groups = {name: kind(**_pop(options, kind)) for name, kind in GROUPS.items()}
    optimizer = OptimizerSpec(learning_rate=0.01, weight_decay=1e-4)
    given: dict[str, Any] = {"data": SYNTHETIC, "seed": 5, "optimizer": optimizer, **groups, **options}
    return RunSpec(run_id, "lenet", ranks=ranks, steps=steps, **given)


def _pop(options: dict[str, Any], group: type[Any]) -> dict[str, Any]:
    return {each.name: options.pop(each.name) for each in fields(group) if each.name in options}


def make_phones(root: Path, count: int) -> list[Phone]:
    phones = [Phone(root / f"phone{index}") for index in range(count)]
    for phone in phones:
        phone.home.mkdir()
    return phones


def mpirun(phones: Sequence[Phone], *arguments: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
    """One rank per phone, in the phone's home. In-memory checkpoints are freed afterwards."""
    try:
        return attempt(phones, *arguments, timeout=timeout)
    finally:
        forget(phones)


def forget(phones: Sequence[Phone]) -> None:
    for phone in phones:
        for socket in (phone.home / layout.RUNS).glob(f"*/{layout.MEMCKPT_SOCKET}"):
            client.stop_server(socket.parent)


def resumed(phones: Sequence[Phone], spec: RunSpec, number: int) -> RunSpec:
    """The next attempt, which resumes from what the phones hold, as the host decides."""
    elected = elect_step([client.held_steps(phone.run_dir(spec.run_id)) for phone in phones])
    assert elected is not None
    return replace(spec, attempt=number, resume=ResumeSpec(*elected))


def attempt(phones: Sequence[Phone], *arguments: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
    argv = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for index, phone in enumerate(phones):
        argv += [*([":"] if index else []), "-np", "1", "-x", f"HOME={phone.home}", *arguments]
    return subprocess.run(argv, env=phones[0].env, capture_output=True, text=True, timeout=timeout, check=False)


def stage(phones: Sequence[Phone], spec: RunSpec) -> None:
    for phone in phones:
        directory = phone.home / layout.attempt_dir(spec.run_id, spec.attempt)
        directory.mkdir(parents=True)
        (directory / layout.RUN_FILE).write_text(spec.to_json())


def train(phones: Sequence[Phone], spec: RunSpec, agent: Sequence[str] = AGENT) -> subprocess.CompletedProcess[str]:
    """Stage and run an attempt. In-memory checkpoints stay, for the next one."""
    stage(phones, spec)
    return attempt(phones, *agent, "train", spec.run_id, "--attempt", str(spec.attempt))


def events(phone: Phone, spec: RunSpec) -> list[dict[str, Any]]:
    path = phone.home / layout.attempt_dir(spec.run_id, spec.attempt) / layout.EVENTS_FILE
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may still be written
