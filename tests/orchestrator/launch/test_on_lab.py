"""Runs end to end: real ssh, real mpirun, four virtual phones on two switches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.contract.schema import RunSpec
from phone_agent.data.sampling import Union, sampler
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from tests.labs import TestLab
from tests.orchestrator.launch.idx import write_idx
from tests.phone_agent.one_process import losses_alone

pytestmark = pytest.mark.lab

PHONES = ["p1-01", "p1-02", "p2-01", "p2-02"]
# Rounding: phones add their gradients in another order than a single process adds those of its samples.
TOLERANCE = 2e-4


def answer(lab: TestLab, *arguments: str, rc: int = 0) -> Any:
    """The JSON document of a command, which must be all it prints on stdout."""
    done = lab.clusterctl(*arguments, "--json", check=False)
    assert done.returncode == rc, f"{done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def until(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.5)
    return found


@contextmanager
def long_run(lab: TestLab, *flags: str) -> Iterator[str]:
    """A run that continues until it is stopped."""
    endless = ("--steps", "100000", "--batch", "2", "--data", "synthetic", "--detach")
    run_id = answer(lab, "launch", *endless, *flags)["run_id"]
    try:
        yield run_id
    finally:
        lab.clusterctl("stop", run_id, "--discard", check=False)


def states(lab: TestLab) -> list[str]:
    done = lab.clusterctl("status", "--json", check=False)
    return [phone["state"] for phone in json.loads(done.stdout)["phones"]]


def spec_of(lab: TestLab, run_id: str) -> RunSpec:
    return RunSpec.from_json((lab.state / f"clusters/lab/runs/{run_id}/run.json").read_text())


def losses_in_one_process(spec: RunSpec) -> list[float]:
    graph = models.build(spec.model, spec.data.classes, spec.data.input_shape)
    state = State(graph, spec.seed)
    executable = get_backend("cpu").compile(graph, state, spec.global_batch, Options())
    return losses_alone(executable, state, Union([sampler(spec, rank.rank) for rank in spec.ranks]), spec)


def test_four_phones_compute_the_losses_of_one_process(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    summary = answer(lab, "launch", "--steps", "20", "--global-batch", "30", "--data", "synthetic", "--seed", "3")
    assert (summary["state"], summary["step"], summary["phones"]) == ("done", 20, PHONES)
    spec = spec_of(lab, summary["run_id"])
    assert [rank.batch for rank in spec.ranks] == [8, 8, 7, 7]
    np.testing.assert_allclose(summary["losses"], losses_in_one_process(spec), rtol=TOLERANCE)
    assert summary["losses"][-1] < 0.9 * summary["losses"][0], "the loss decreases"


def test_dataset_is_staged_once_and_evaluated_at_the_end(provisioned_lab4: TestLab, tmp_path: Path) -> None:
    lab = provisioned_lab4
    write_idx(tmp_path / "dots", train=400, test=40)
    for _ in range(2):
        flags = ("--steps", "3", "--batch", "4", "--data", str(tmp_path / "dots"))
        summary = answer(lab, "launch", *flags, "--limit", "sw1")
        assert summary["data"] == "dots"
        assert 0.0 <= summary["test_accuracy"] <= 1.0
    listing = lab.on("p1-02", "ls", ".clusterctl/data/dots").stdout.split()
    assert listing == ["dataset.json", "test-00000.shard", "train-00000.shard"]


def test_run_continues_after_detaching_and_can_be_attached_and_stopped(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with long_run(lab) as run_id:
        watching = watch(lab, run_id)
        assert watching.returncode == 130
        assert "Detached" in watching.stderr
        refused = lab.clusterctl("launch", "--steps", "1", check=False)
        assert refused.returncode == 1
        assert f"sw1:1-2,sw2:1-2 (4 phones): takes part in {run_id}, which is running" in refused.stderr
        assert f"clusterctl attach {run_id}" in refused.stderr
        stopped = answer(lab, "stop", run_id[:22])
        assert (stopped["state"], stopped["run_id"]) == ("stopped", run_id)
        assert stopped["step"] > 0
    listed = answer(lab, "runs")
    assert [run["state"] for run in listed if run["run_id"] == run_id] == ["stopped"]


def watch(lab: TestLab, run_id: str) -> subprocess.CompletedProcess[str]:
    """Attaches, and presses Ctrl-C after the first line."""
    command = [sys.executable, "-u", "-m", "orchestrator.cli.app", "attach", run_id]
    with subprocess.Popen(
        command, env=lab.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as attached:
        assert attached.stderr is not None
        first = attached.stderr.readline()
        assert first.startswith("step ")
        os.kill(attached.pid, signal.SIGINT)
        out, err = attached.communicate(timeout=30)
    return subprocess.CompletedProcess(command, attached.returncode, out, first + err)


def test_killed_rank_is_reported_with_phone_and_port(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with long_run(lab, "--max-restarts", "0") as run_id:
        start = until(lambda: lab.on("p2-01", "cat", f".clusterctl/runs/{run_id}/rank.jsonl", check=False).stdout)
        lab.on("p2-01", "kill", "-9", str(json.loads(start.splitlines()[0])["pid"]))
        summary = answer(lab, "attach", run_id, rc=1)
    error = summary["error"]
    assert (summary["state"], error["phone"], error["switch"], error["port"]) == ("failed", "p2-01", "sw2", 1)
    assert error["message"] == "rank was killed (signal 9 (Killed))"


def test_status_distinguishes_off_from_unprovisioned_and_launch_skips_both(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    lab.on("p1-02", "mv", ".clusterctl/agent/current", ".clusterctl/agent/away")
    lab.clusterctl("lab", "power", "p2-02", "off")
    try:
        status = answer(lab, "status", rc=1)
        assert [phone["state"] for phone in status["phones"]] == ["ready", "unprovisioned", "ready", "off"]
        assert status["phones"][1]["vitals"]["memory_free_mb"] > 0
        assert status["phones"][3]["vitals"] is None
        refused = lab.clusterctl("launch", check=False)
        assert refused.returncode == 1
        assert "clusterctl provision --limit p1-02" in refused.stderr
        assert "clusterctl launch --limit sw1:1,sw2:1" in refused.stderr
        plan = answer(lab, "launch", "--dry-run", "--skip-unfit")
        assert [rank["phone"] for rank in plan["run"]["ranks"]] == ["p1-01", "p2-01"]
        assert plan["mpirun"][0] == "mpirun"
    finally:
        lab.on("p1-02", "mv", ".clusterctl/agent/away", ".clusterctl/agent/current")
        lab.clusterctl("lab", "power", "p2-02", "on")
        until(lambda: states(lab) == ["ready"] * 4)


def test_logs_are_collected_from_all_phones_safely(provisioned_lab4: TestLab, tmp_path: Path) -> None:
    lab = provisioned_lab4
    run_id = answer(lab, "launch", "--steps", "3", "--batch", "2", "--data", "synthetic")["run_id"]
    whole = answer(lab, "collect-logs", run_id, "--out", str(tmp_path), "--archive")
    assert [phone["status"] for phone in whole["phones"]] == ["ok"] * 4
    assert (tmp_path / f"{run_id}.tar.gz").is_file()
    merged = [json.loads(line) for line in (tmp_path / run_id / "merged.jsonl").read_text().splitlines()]
    assert {entry["phone"] for entry in merged} == set(PHONES)
    assert [entry["time"] for entry in merged] == sorted(entry["time"] for entry in merged)

    directory = f".clusterctl/runs/{run_id}"
    lab.on("p1-02", "ln", "-s", "/etc/passwd", f"{directory}/stolen.log")
    lab.on("p1-02", "bash", "-c", f"printf '\\033]0;owned\\007\\n' >> {directory}/rank.log")
    lab.on("p2-01", "rm", "-r", directory)
    part = answer(lab, "collect-logs", run_id, "--out", str(tmp_path), rc=1)
    by_name = {phone["name"]: phone for phone in part["phones"]}
    assert any("stolen.log" in note and "symbolic link" in note for note in by_name["p1-02"]["notes"])
    assert not (tmp_path / run_id / "p1-02" / "stolen.log").exists()
    assert "\x1b" not in (tmp_path / run_id / "merged.log").read_text()
    assert by_name["p2-01"]["kept_from_earlier"]
    assert (tmp_path / run_id / "p2-01" / "rank.jsonl").is_file()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "no temporary files are left"


@pytest.mark.parametrize("flags", [("--algorithm", "ring", "--order", "interleaved"), ("--algorithm", "mpi")])
def test_allreduce_is_correct_and_compared_with_the_link_rate(
    provisioned_lab4: TestLab, flags: tuple[str, ...]
) -> None:
    found = answer(provisioned_lab4, "bench", "allreduce", "--mb", "2", "--repeats", "2", *flags)
    assert found["correct"] is True
    assert found["seconds"] > 0
    assert found["line_rate_fraction"] == pytest.approx(0.024 / found["seconds"])


def test_unknown_model_is_a_usage_error(provisioned_lab4: TestLab) -> None:
    done = provisioned_lab4.clusterctl("launch", "--model", "resnet999", check=False)
    assert done.returncode == 2
    assert "unknown model 'resnet999'; did you mean" in done.stderr
