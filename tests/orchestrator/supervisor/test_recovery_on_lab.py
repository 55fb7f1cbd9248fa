"""Phones die, the head phone among them, and whoever watches: the run goes on, and every step is done."""

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

from phone_agent.contract.schema import PartitionSlice
from phone_agent.contract.shards import HEADER_BYTES
from phone_agent.data.sampling import share_order, whole_order
from tests.labs import TestLab, eventually
from tests.orchestrator.launch.idx import SIDE, write_idx
from tests.orchestrator.launch.test_on_lab import answer, states
from tests.phone_agent.datasets import damage

pytestmark = pytest.mark.lab

WORK = ("launch", "--batch", "4", "--data", "synthetic", "--bucket", "1MB", "--balance", "off")


def runs_of(lab: TestLab) -> set[Path]:
    """Not those that are just being written down."""
    directory = lab.state / "clusters/lab/runs"
    found = directory.iterdir() if directory.is_dir() else ()
    return {run for run in found if not run.name.startswith(".")}


def steps_of(run: Path, attempt: int | None = None) -> list[int]:
    """Of an attempt, or all, as this computer has heard of them."""
    paths = [run / "events.jsonl", *sorted(run.glob("attempt-*/events.jsonl"))]
    paths = paths if attempt is None else paths[attempt : attempt + 1]
    lines = [line for path in paths if path.exists() for line in path.read_text().splitlines()]
    return [event["step"] for event in map(json.loads, lines) if event["event"] == "step"]


def assert_all_done(run: Path, last: int) -> None:
    """Nobody may have told yet of a step that all had committed when somebody died: the next attempt goes on there."""
    attempts = [steps_of(run, attempt) for attempt in range(1 + len(list(run.glob("attempt-*"))))]
    gone_on_from = {steps[0] - 1 for steps in attempts[1:] if steps}
    assert set(range(1, last + 1)) - {step for steps in attempts for step in steps} <= gone_on_from


def incidents_of(run: Path) -> list[str]:
    return [json.loads(line)["message"] for line in (run / "incidents.jsonl").read_text().splitlines()]


@contextmanager
def launched(lab: TestLab, *flags: str, at_step: int = 10) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run that has done some steps, and the process that watches it."""
    before = runs_of(lab)
    with lab.started(*WORK, *flags, "--json") as process:
        eventually(lambda: process.poll() is not None or bool(runs_of(lab) - before))
        (run,) = runs_of(lab) - before
        eventually(lambda: process.poll() is not None or max(steps_of(run), default=0) >= at_step)
        try:
            yield process, run
        finally:
            process.kill()
            lab.clusterctl("stop", run.name, check=False)


def summary(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def rank_of(lab: TestLab, phone: str, run: Path) -> str:
    start = lab.on(phone, "head", "-1", f".clusterctl/runs/{run.name}/rank.jsonl").stdout
    return str(json.loads(start)["pid"])


def holds(lab: TestLab, phone: str) -> bool:
    """Whether somebody on the phone keeps a run's state."""
    return "phone_agent\0keep" in lab.on(phone, "bash", "-c", "cat /proc/[0-9]*/cmdline", check=False).stdout


def test_a_killed_rank_costs_seconds_and_no_step(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "120") as (process, run):
        lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
        found = summary(process)
    assert (found["state"], found["step"], len(found["phones"])) == ("done", 120, 4)
    assert_all_done(run, 120)
    first, second = incidents_of(run)
    assert first.startswith("p2-01 (sw2:1): its rank was killed (signal 9 (Killed)); starting again from step ")
    assert second.startswith("going on with step ")
    assert not any(holds(lab, phone) for phone in found["phones"]), "what is done is not kept"


def test_the_head_phone_and_the_host_may_die_at_once_and_a_checkpoint_goes_on(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "150") as (process, run):
        os.kill(process.pid, signal.SIGKILL)
        lab.clusterctl("lab", "power", "p1-01", "off")
        try:
            found = answer(lab, "attach", run.name)
        finally:
            lab.clusterctl("lab", "power", "p1-01", "on")
    assert (found["state"], found["phones"]) == ("done", ["p1-02", "p2-01", "p2-02"])
    first, *_, last = steps = steps_of(run, attempt=1)
    assert (steps, last) == ([*range(first, 151)], 150)
    assert first > max(steps_of(run, attempt=0)), "no step that was heard of is done again"
    assert incidents_of(run)[0].startswith("p1-01 (sw1:1): does not answer: cable or power; starting again from step ")
    eventually(lambda: states(lab) == ["ready"] * 4)
    resumed = answer(lab, "launch", "--resume", run.name, "--steps", "155", "--limit", "sw1")
    assert (resumed["state"], resumed["step"], resumed["phones"]) == ("done", 155, ["p1-01", "p1-02"])
    assert len(resumed["losses"]) == 5


def test_a_run_that_another_computer_looks_after_is_left_alone(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    run_id = answer(lab, *WORK, "--steps", "2", "--limit", "p1-01,p1-02")["run_id"]
    agent = ("env", "PYTHONPATH=.clusterctl/agent/current", "python3", "-m", "phone_agent")
    lab.on("p1-02", *agent, "cleanup", run_id, "--holder", "eve@elsewhere")
    refused = lab.clusterctl("stop", run_id, check=False)
    assert refused.returncode == 1
    assert "eve@elsewhere looks after run" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["", "checking", "staging", "starting", "step 1/"])
def test_a_launch_killed_at_any_stage_leaves_nothing_that_stop_and_launch_do_not_clear(
    provisioned_lab4: TestLab, stage: str
) -> None:
    lab, before = provisioned_lab4, runs_of(provisioned_lab4)
    with lab.started(*WORK, "--steps", "100000") as process:
        assert process.stderr is not None
        while stage and not process.stderr.readline().startswith(stage):
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    for run in runs_of(lab) - before:
        lab.clusterctl("stop", run.name)
    assert not any(holds(lab, phone) or trains(lab, phone) for phone in ("p1-01", "p1-02", "p2-01", "p2-02"))
    assert answer(lab, *WORK, "--steps", "2")["state"] == "done"


@pytest.mark.slow
@pytest.mark.parametrize("line", ["p2-01", "staging", "starting"])
def test_whoever_recovers_a_run_may_be_killed_over_it(provisioned_lab4: TestLab, line: str) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "200") as (process, run):
        lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
        assert process.stderr is not None
        while not (said := process.stderr.readline()).startswith("p2-01"):
            assert said, "it ended without a word"
        while not said.startswith(line):
            said = process.stderr.readline()
        os.kill(process.pid, signal.SIGKILL)
        found = answer(lab, "attach", run.name)
    assert (found["state"], len(found["phones"])) == ("done", 4)
    assert_all_done(run, 200)


@pytest.mark.slow
def test_a_pulled_cable_costs_a_phone_until_it_is_plugged_in_again(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "1500") as (process, run):
        lab.clusterctl("lab", "set", "p2-02", "link=down")
        try:
            eventually((run / "attempt-1" / "events.jsonl").exists)
        finally:
            lab.clusterctl("lab", "set", "p2-02", "link=up")
        found = summary(process)
    assert (found["state"], len(found["phones"])) == ("done", 4)
    said = incidents_of(run)
    assert said[0].startswith("p2-02 (sw2:2): does not answer: cable or power; starting again from step ")
    assert any(line.startswith("p2-02 (sw2:2) answers again: taken in") for line in said)
    assert_all_done(run, 1500)


@pytest.mark.slow
def test_a_power_cut_to_all_goes_on_from_the_last_checkpoint(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    phones = ("p1-01", "p1-02", "p2-01", "p2-02")
    with launched(lab, "--steps", "300", "--checkpoint-every", "20", at_step=45) as (process, run):
        for phone in phones:
            lab.clusterctl("lab", "power", phone, "off")
        for phone in phones:
            lab.clusterctl("lab", "power", phone, "on")
        found = summary(process)
    assert (found["state"], found["step"]) == ("done", 300)
    assert any("no phone holds the training state: going on from checkpoint-" in line for line in incidents_of(run))


SHARD = ".clusterctl/data/specks/train-00000.shard"


def rot(lab: TestLab, phone: str, sample: int) -> None:
    """A sample of the phone's; the file's size and time stay what they are."""
    byte = HEADER_BYTES + sample * SIDE * SIDE
    write = f"printf '\\377\\0\\377' | dd of={SHARD} bs=1 seek={byte} conv=notrunc status=none"
    lab.on(phone, "bash", "-c", f"touch -r {SHARD} then && {write} && touch -r then {SHARD} && rm then")


def pushed(lab: TestLab, folder: Path, how: str) -> None:
    lab.clusterctl("data", "remove", "specks", check=False)
    write_idx(folder, train=200, test=20)
    lab.clusterctl("data", "add", "specks", str(folder))
    lab.clusterctl("data", "push", "specks", how)


@pytest.mark.parametrize("how", ["--whole", "--share"])
def test_a_damaged_sample_costs_the_phone_its_turn_and_not_the_run(
    provisioned_lab4: TestLab, tmp_path: Path, how: str
) -> None:
    """The file is sent again before the next attempt."""
    lab, sixteen = provisioned_lab4, (4, 4, 4, 4)
    pushed(lab, tmp_path / "specks", how)
    whole = how == "--whole"
    order = whole_order(200, sixteen, 2, 0) if whole else share_order(200, sixteen, PartitionSlice(2, 0, 4), 0)
    sample = int(order.taken(9)[0][1])
    rot(lab, "p2-01", sample)
    work = [*WORK, "--data", "specks", how, "--seed", "0", "--steps"]
    found = answer(lab, *work, "30")
    run = lab.state / "clusters/lab/runs" / found["run_id"]
    assert (found["state"], found["step"], found["phones"]) == ("done", 30, ["p1-01", "p1-02", "p2-01", "p2-02"])
    assert_all_done(run, 30)
    assert incidents_of(run)[0].startswith(f"p2-01 (sw2:1): sample {sample} of ")
    again = answer(lab, *work, "10")
    assert (again["state"], len(again["phones"])) == ("done", 4), "it was found damaged, so it was sent again"
    assert not (lab.state / "clusters/lab/runs" / again["run_id"] / "incidents.jsonl").exists()


def test_a_phone_whose_samples_cannot_be_replaced_is_left_out(provisioned_lab4: TestLab, tmp_path: Path) -> None:
    """This computer's own copy is damaged as well, and the others have what they need."""
    lab = provisioned_lab4
    pushed(lab, tmp_path / "specks", "--whole")
    sample = int(whole_order(200, (4, 4, 4, 4), 2, 0).taken(9)[0][1])
    rot(lab, "p2-01", sample)
    damage(lab.state / "data/specks/train-00000.shard", HEADER_BYTES + 1)
    found = answer(lab, *WORK, "--data", "specks", "--whole", "--seed", "0", "--steps", "30")
    assert (found["state"], found["step"], found["phones"]) == ("done", 30, ["p1-01", "p1-02", "p2-02"])
    told = incidents_of(lab.state / "clusters/lab/runs" / found["run_id"])
    assert any("is damaged, here on this computer" in line and "data remove specks" in line for line in told)
    lab.clusterctl("data", "remove", "specks", "--from-phones")


def trains(lab: TestLab, phone: str) -> bool:
    said = lab.on(phone, "bash", "-c", "cat /proc/[0-9]*/cmdline", check=False).stdout
    return "phone_agent\0train" in said or "mpirun\0" in said or "orted\0" in said
