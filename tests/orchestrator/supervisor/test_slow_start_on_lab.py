"""A run whose first step takes longer than any fixed limit is not given up; a rank that hangs is, and is named."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator import process_lock
from tests.labs import TestLab, eventually
from tests.orchestrator.launch.test_on_lab import answer
from tests.orchestrator.supervisor.test_recovery_on_lab import blame, incidents_of, runs_of

pytestmark = [pytest.mark.lab, pytest.mark.slow]

VICTIM = "p2-02"
LAUNCH = ("launch", "--model", "resnet50", "--batch", "1", "--data", "synthetic", "--steps", "2")

# The limits of a real run, scaled down by thirty: with fixed limits, a run without a step would end after 14 s.
_IMPATIENT_SUPERVISOR = """
from orchestrator.paths import ClusterState
from orchestrator.supervisor import life_signs, step_timeout
from orchestrator.supervisor.process import SupervisorProcess
step_timeout.FIRST_STEP_S, step_timeout._PER_RANK_S = 2.0, 0.0
life_signs.STALL_S, life_signs._PER_RANK_S, life_signs._SLOWDOWN = 10.0, 0.0, 0.0
SupervisorProcess(ClusterState("lab")).run()
"""


@contextmanager
def impatient_supervisor(lab: TestLab) -> Iterator[None]:
    lock = lab.state / "clusters/lab/supervisor.lock"
    process_lock.kill_holder(lock, 10.0, signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", _IMPATIENT_SUPERVISOR], env=lab.environment) as process:
        try:
            eventually(lambda: process_lock.holder(lock) == process.pid)
            yield
        finally:
            process.kill()


@contextmanager
def throttled(lab: TestLab, speed: float) -> Iterator[None]:
    lab.clusterctl("lab", "set", VICTIM, f"throttle={speed}")
    try:
        yield
    finally:
        lab.clusterctl("lab", "set", VICTIM, "throttle=1")


def test_a_slow_first_step_is_not_a_failure(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with impatient_supervisor(lab), throttled(lab, 0.1):
        found = answer(lab, *LAUNCH)
    assert (found["state"], found["step"]) == ("done", 2)
    assert not _restarts(lab.state / "clusters/lab/runs" / found["run_id"])


def test_a_rank_that_hangs_while_it_starts_is_named_with_its_phase(provisioned_lab4: TestLab) -> None:
    """Its process is stopped as soon as it exists."""
    lab, before = provisioned_lab4, runs_of(provisioned_lab4)
    small = ("launch", "--data", "synthetic", "--steps", "2", "--json")
    with impatient_supervisor(lab), lab.started(*small) as process:
        eventually(lambda: bool(runs_of(lab) - before))
        (run,) = runs_of(lab) - before
        startup = f".clusterctl/runs/{run.name}/startup.jsonl"
        eventually(lambda: lab.on(VICTIM, "test", "-s", startup, check=False).returncode == 0)
        lab.on(VICTIM, "pkill", "-STOP", "-f", f"phone_agent train {run.name}")
        eventually(lambda: bool(_restarts(run)), 120)
        process.communicate(timeout=150)
    assert blame(_restarts(run)[0]) == ("restarting", "rank_frozen", [VICTIM])


def _restarts(run: Path) -> list[dict[str, object]]:
    try:
        return [each for each in incidents_of(run) if each["incident"] == "restarting"]
    except FileNotFoundError:
        return []
