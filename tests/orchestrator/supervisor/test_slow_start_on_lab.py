"""A run whose first step takes longer than any fixed limit is not given up; a rank that hangs is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.labs import TestLab, eventually
from tests.orchestrator.launch.test_on_lab import answer
from tests.orchestrator.supervisor.test_recovery_on_lab import blame, incidents_of, runs_of, trains

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# The limits of a real run, scaled down: with them, 420 s become 14 s.
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
    eventually(lambda: not (lab.state / "clusters/lab/supervisor.lock").exists() or _unsupervised(lab), 60)
    with subprocess.Popen([sys.executable, "-c", _IMPATIENT_SUPERVISOR], env=lab.environment) as process:
        try:
            eventually(lambda: "running" in lab.clusterctl("status", check=False).stdout or not _unsupervised(lab), 60)
            yield
        finally:
            os.kill(process.pid, signal.SIGKILL)
