"""Collectives on real MPI processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from phone_agent.comm.factory import FACTORIES, make_collective
from phone_agent.comm.world import SingleProcessWorld
from phone_agent.contract.errors import AgentError
from tests.phone_agent.phones import AGENT, Phone, make_phones, mpirun
from tests.phone_agent.ring_ranks import CASES, LENGTHS


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_sums_are_correct_on_real_ranks(tmp_path: Path, world: int) -> None:
    phones = make_phones(tmp_path, world)
    done = mpirun(phones, sys.executable, "-m", "tests.phone_agent.ring_ranks")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(world), str(world * len(CASES) * len(LENGTHS))]


@pytest.mark.parametrize("algorithm", FACTORIES)
def test_allreduce_bench_reports_time_and_correctness(tmp_path: Path, algorithm: str) -> None:
    phones = make_phones(tmp_path, 3)
    done = mpirun(phones, *AGENT, "allreduce-bench", "--mb", "0.5", "--algorithm", algorithm, "--repeats", "2")
    report = json.loads(done.stdout)
    assert report["correct"] is True
    assert (report["world"], report["bytes"], report["algorithm"]) == (3, 500_000, algorithm)
    assert report["seconds"] == min(report["all"])
    assert len(report["all"]) == 2


def test_an_unknown_algorithm_is_rejected(phone: Phone) -> None:
    with pytest.raises(AgentError, match="unknown allreduce algorithm 'star'; choose from: ring, hierarchical"):
        make_collective("star", SingleProcessWorld())
    done = phone.agent("allreduce-bench", "--algorithm", "star")
    assert (done.returncode, done.stdout) == (1, "")
    assert "choose from: ring, hierarchical" in done.stderr


def test_a_rank_that_fails_to_start_ends_the_benchmark(tmp_path: Path) -> None:
    """Only the second phone cannot load its core; the first would wait for it forever."""
    phones = make_phones(tmp_path, 2)
    argv = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for isa in ("", "none-such"):
        environment = ("-x", f"CLUSTERCTL_ISA={isa}") if isa else ()
        argv += [*([":"] if isa else []), "-np", "1", *environment, *AGENT, "allreduce-bench", "--mb", "1"]
    done = subprocess.run(argv, env=phones[0].env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "none-such" in done.stderr
