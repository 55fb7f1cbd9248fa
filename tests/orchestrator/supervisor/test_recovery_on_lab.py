"""Phones fail, the head phone and this computer among them: the run recovers, and every step is completed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.supervisor.recovery_timing import PHASES
from phone_agent.contract.schema import PartitionSlice
from phone_agent.contract.shards import HEADER_BYTES
from phone_agent.data.sampling import partition_order, replicated_order
from tests.labs import TestLab, eventually
from tests.orchestrator.launch.idx import SIDE, write_idx
from tests.orchestrator.launch.test_on_lab import answer, states
from tests.phone_agent.datasets import damage

pytestmark = pytest.mark.lab

WORK = ("launch", "--batch", "4", "--data", "synthetic", "--bucket-size", "1MB", "--load-balancing", "off")


def runs_of(lab: TestLab) -> set[Path]:
    """Without those that are still being written."""
    directory = lab.state / "clusters/lab/runs"
    found = directory.iterdir() if directory.is_dir() else ()
    return {run for run in found if not run.name.startswith(".")}


def steps_of(run: Path, attempt: int | None = None) -> list[int]:
    """Of one attempt, or of all, as reported to this computer."""
    later = sorted(run.glob("attempt-*/events.jsonl"), key=lambda path: int(path.parent.name.removeprefix("attempt-")))
    paths = [run / "events.jsonl", *later]
    paths = paths if attempt is None else paths[attempt : attempt + 1]
    lines = [line for path in paths if path.exists() for line in path.read_text().splitlines()]
    return [event["step"] for event in map(json.loads, lines) if event["event"] == "step"]


def assert_all_completed(run: Path, last: int) -> None:
    """A step may be missing if all ranks committed it and the fault came before its report: the next attempt resumes
    there."""
    attempts = [steps_of(run, attempt) for attempt in range(1 + len(list(run.glob("attempt-*"))))]
    resumed_from = {steps[0] - 1 for steps in attempts[1:] if steps}
    assert set(range(1, last + 1)) - {step for steps in attempts for step in steps} <= resumed_from


def incidents_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "incidents.jsonl").read_text().splitlines()]


def blame(incident: dict[str, Any]) -> tuple[str, str, list[str]]:
    return incident["incident"], incident["cause"], incident["phones"]


@contextmanager
def launched(lab: TestLab, *flags: str, at_step: int = 10) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run that has completed some steps, and the process that shows it."""
    before = runs_of(lab)
    with lab.started(*WORK, *flags, "--json") as process:
        eventually(lambda: process.poll() is not None or bool(runs_of(lab) - before))
        (run,) = runs_of(lab) - before
        eventually(lambda: process.poll() is not None or max(steps_of(run), default=0) >= at_step)
        try:
            yield process, run
        finally:
            process.kill()
            lab.clusterctl("stop", run.name, "--discard", check=False)


def summary(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def rank_of(lab: TestLab, phone: str, run: Path) -> str:
    start = lab.on(phone, "head", "-1", f".clusterctl/runs/{run.name}/rank.jsonl").stdout
    return str(json.loads(start)["pid"])


def holds_checkpoint(lab: TestLab, phone: str) -> bool:
    """Whether an in-memory checkpoint server runs on the phone."""
    return "phone_agent\0memckpt-server" in lab.on(phone, "bash", "-c", "cat /proc/[0-9]*/cmdline", check=False).stdout


def test_a_killed_rank_loses_no_step(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "120") as (process, run):
        lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
        found = summary(process)
    assert (found["state"], found["step"], len(found["phones"])) == ("done", 120, 4)
    assert_all_completed(run, 120)
    first, second = incidents_of(run)
    assert blame(first) == ("restarting", "rank_killed", ["p2-01"])
    assert first["message"].startswith("p2-01 (sw2:1): rank was killed (signal 9 (Killed)); restarting from step ")
    assert (second["incident"], [*second["phases"]]) == ("resumed", [*PHASES])
    assert not any(holds_checkpoint(lab, phone) for phone in found["phones"]), "a finished run frees its memory"


def test_head_phone_and_host_fail_together_and_the_checkpoint_resumes(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "150") as (process, run):
        os.kill(process.pid, signal.SIGKILL)
        lab.kill_supervisor()
        lab.clusterctl("lab", "power", "p1-01", "off")
        try:
            found = answer(lab, "attach", run.name)
        finally:
            lab.clusterctl("lab", "power", "p1-01", "on")
    assert (found["state"], found["phones"]) == ("done", ["p1-02", "p2-01", "p2-02"])
    first, *_, last = steps = steps_of(run, attempt=1)
    assert (steps, last) == ([*range(first, 151)], 150)
    assert first > max(steps_of(run, attempt=0)), "no reported step is repeated"
    assert blame(incidents_of(run)[0]) == ("restarting", "phone_unreachable", ["p1-01"])
    eventually(lambda: states(lab) == ["ready"] * 4)
    resumed = answer(lab, "launch", "--resume", run.name, "--steps", "155", "--limit", "sw1")
    assert (resumed["state"], resumed["step"], resumed["phones"]) == ("done", 155, ["p1-01", "p1-02"])
    assert len(resumed["losses"]) == 5


def test_a_run_that_another_computer_supervises_is_not_stopped(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    run_id = answer(lab, *WORK, "--steps", "2", "--limit", "p1-01,p1-02")["run_id"]
    agent = ("env", "PYTHONPATH=.clusterctl/agent/current", "python3", "-m", "phone_agent")
    lab.on("p1-02", *agent, "cleanup", run_id, "--holder", "eve@elsewhere")
    refused = lab.clusterctl("stop", run_id, check=False)
    assert refused.returncode == 1
    assert "eve@elsewhere" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["", "checking", "staging", "starting", "step 1/"])
def test_a_launch_killed_at_any_stage_can_be_stopped_and_launched_again(provisioned_lab4: TestLab, stage: str) -> None:
    lab, before = provisioned_lab4, runs_of(provisioned_lab4)
    with lab.started(*WORK, "--steps", "100000") as process:
        assert process.stderr is not None
        while stage and not process.stderr.readline().startswith(stage):
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    for run in runs_of(lab) - before:
        lab.clusterctl("stop", run.name)
    assert not any(holds_checkpoint(lab, phone) or trains(lab, phone) for phone in ("p1-01", "p1-02", "p2-01", "p2-02"))
    assert answer(lab, *WORK, "--steps", "2")["state"] == "done"


@pytest.mark.slow
@pytest.mark.parametrize("line", ["p2-01", "staging", "starting"])
def test_a_supervisor_killed_during_recovery_is_replaced(provisioned_lab4: TestLab, line: str) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "200") as (process, run):
        lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
        assert process.stderr is not None
        while not (text := process.stderr.readline()).startswith("p2-01"):
            assert text, "it ended without a message"
        while not text.startswith(line):
            text = process.stderr.readline()
        lab.kill_supervisor()
        found = summary(process)
    assert (found["state"], len(found["phones"])) == ("done", 4)
    assert_all_completed(run, 200)


@pytest.mark.slow
def test_a_phone_rejoins_when_its_cable_is_plugged_in_again(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "1500") as (process, run):
        lab.clusterctl("lab", "set", "p2-02", "link=down")
        try:
            eventually((run / "attempt-1" / "events.jsonl").exists)
        finally:
            lab.clusterctl("lab", "set", "p2-02", "link=up")
        found = summary(process)
    assert (found["state"], len(found["phones"])) == ("done", 4)
    incidents = incidents_of(run)
    assert blame(incidents[0]) == ("restarting", "phone_unreachable", ["p2-02"])
    assert any(each["incident"] == "rejoining" and each["message"].startswith("p2-02 (sw2:2)") for each in incidents)
    assert_all_completed(run, 1500)


@pytest.mark.slow
def test_after_a_power_cut_to_all_phones_the_last_checkpoint_resumes(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    phones = ("p1-01", "p1-02", "p2-01", "p2-02")
    with launched(lab, "--steps", "300", "--checkpoint-every", "20", at_step=45) as (process, run):
        for phone in phones:
            lab.clusterctl("lab", "power", phone, "off")
        for phone in phones:
            lab.clusterctl("lab", "power", phone, "on")
        found = summary(process)
    assert (found["state"], found["step"]) == ("done", 300)
    assert "state_lost" in [incident["incident"] for incident in incidents_of(run)]


SHARD = ".clusterctl/data/specks/train-00000.shard"


def damage_sample(lab: TestLab, phone: str, sample: int) -> None:
    """Overwrite a sample on the phone. Size and time of the file stay the same."""
    byte = HEADER_BYTES + sample * SIDE * SIDE
    write = f"printf '\\377\\0\\377' | dd of={SHARD} bs=1 seek={byte} conv=notrunc status=none"
    lab.on(phone, "bash", "-c", f"touch -r {SHARD} then && {write} && touch -r then {SHARD} && rm then")


def push_dataset(lab: TestLab, folder: Path, how: str) -> None:
    lab.clusterctl("data", "remove", "specks", check=False)
    write_idx(folder, train=200, test=20)
    lab.clusterctl("data", "add", "specks", str(folder))
    lab.clusterctl("data", "push", "specks", how)


@pytest.mark.parametrize("how", ["--replicate-data", "--shard-data"])
def test_a_damaged_sample_is_sent_again_before_the_restart(provisioned_lab4: TestLab, tmp_path: Path, how: str) -> None:
    lab, sixteen = provisioned_lab4, (4, 4, 4, 4)
    push_dataset(lab, tmp_path / "specks", how)
    whole = how == "--replicate-data"
    order = replicated_order(200, sixteen, 2, 0) if whole else partition_order(200, sixteen, PartitionSlice(2, 0, 4), 0)
    sample = int(order.samples_at(9)[0][1])
    damage_sample(lab, "p2-01", sample)
    work = [*WORK, "--data", "specks", how, "--seed", "0", "--steps"]
    found = answer(lab, *work, "30")
    run = lab.state / "clusters/lab/runs" / found["run_id"]
    assert (found["state"], found["step"], found["phones"]) == ("done", 30, ["p1-01", "p1-02", "p2-01", "p2-02"])
    assert_all_completed(run, 30)
    assert incidents_of(run)[0]["message"].startswith(f"p2-01 (sw2:1): sample {sample} of ")
    again = answer(lab, *work, "10")
    assert (again["state"], len(again["phones"])) == ("done", 4), "the damaged sample was replaced"
    assert not (lab.state / "clusters/lab/runs" / again["run_id"] / "incidents.jsonl").exists()


def test_a_phone_whose_samples_cannot_be_replaced_is_left_out(provisioned_lab4: TestLab, tmp_path: Path) -> None:
    """The copy on this computer is damaged as well; the other phones are complete."""
    lab = provisioned_lab4
    push_dataset(lab, tmp_path / "specks", "--replicate-data")
    sample = int(replicated_order(200, (4, 4, 4, 4), 2, 0).samples_at(9)[0][1])
    damage_sample(lab, "p2-01", sample)
    damage(lab.state / "data/specks/train-00000.shard", HEADER_BYTES + 1)
    found = answer(lab, *WORK, "--data", "specks", "--replicate-data", "--seed", "0", "--steps", "30")
    assert (found["state"], found["step"], found["phones"]) == ("done", 30, ["p1-01", "p1-02", "p2-02"])
    incidents = incidents_of(lab.state / "clusters/lab/runs" / found["run_id"])
    assert any("on this computer" in each["message"] and "data remove specks" in each["message"] for each in incidents)
    lab.clusterctl("data", "remove", "specks", "--from-phones")


def trains(lab: TestLab, phone: str) -> bool:
    commands = lab.on(phone, "bash", "-c", "cat /proc/[0-9]*/cmdline", check=False).stdout
    return any(command in commands for command in ("phone_agent\0train", "mpirun\0", "orted\0"))
